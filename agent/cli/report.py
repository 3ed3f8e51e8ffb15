"""`agent report`: a run as one HTML file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from agent.cli.console import Console
from agent.cli.text import say
from agent.report import Report, Written
from agent.report.ablation import Ablation
from agent.report.collect import Kept
from agent.report.places import find_run
from agent.report.write import MEGABYTE
from agent.store.run_view import load_run


def run(folder: Path, *, out: Path | None, gold: Path | None, kept: Kept, max_mb: float, as_json: bool) -> None:
    """Write a run's report and say where it is.

    Raises:
        UsageError: the folder is no run, or holds none; gold cannot be read.
        StorageError: the file cannot be written.
    """
    notes = Console(stderr=True)
    place, ablation = find_run(folder)
    with load_run(place) as view, _progress(notes) as progress:
        known = {"ablation": ablation, **_compared(place, gold)}
        report = Report(view, kept=kept, max_bytes=round(max_mb * MEGABYTE), **known)
        written = report.write(out or place / "report.html", progress)
    if as_json:
        typer.echo(json.dumps(_as_json(written, ablation)))
        return
    for note in written.notes:
        say(notes, note)
    say(Console(), f"{written.path} ({written.bytes / MEGABYTE:.1f} MB, {written.annotations:,} annotations)")


def _compared(place: Path, gold: Path | None) -> dict[str, Any]:
    """Return what the report says of people's labels: nothing without them."""
    if gold is None:
        return {}
    # needs the extra `stats`
    from agent.report.figures.gold import blocks
    from agent.scoring.gold import read_gold
    from agent.scoring.report import report

    return {"gold": read_gold(gold).labels, "against_gold": blocks(report([place], gold))}


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar on a terminal; nothing elsewhere."""
    if not console.is_terminal:
        yield None
        return
    columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("read"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("")
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _as_json(written: Written, ablation: Ablation | None) -> dict[str, object]:
    return {
        "path": str(written.path),
        "bytes": written.bytes,
        "annotations": written.annotations,
        "listed": written.listed,
        "with_evidence": written.with_evidence,
        "ablation": ablation is not None,
        "notes": list(written.notes),
    }
