"""`agent report`: a run as one HTML file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from agent.cli.console import Console
from agent.cli.text import print_json, say
from agent.report import Report, Written
from agent.report.collect import Kept
from agent.report.places import Place, find_run
from agent.report.write import MEGABYTE
from agent.store.run_view import load_run
from agent.wording import counted


def run(folder: Path, *, out: Path | None, gold: Path | None, kept: Kept, max_mb: float, as_json: bool) -> None:
    """Write a run's report and say where it is.

    Raises:
        UsageError: the folder is no run, or holds none; gold cannot be read.
        StorageError: the file cannot be written.
    """
    notes = Console(stderr=True)
    place = find_run(folder)
    with load_run(place.run) as view, _progress(notes) as progress:
        known = {"title": place.title, "ablation": place.ablation, **_compared(place.run, gold)}
        report = Report(view, kept=kept, max_bytes=round(max_mb * MEGABYTE), **known)
        written = report.write(out or folder / "report.html", progress)
    if as_json:
        print_json(_as_json(written, place))
        return
    if place.run != folder:
        say(notes, f"note: the page lists the pairs of {place.run}; give another run's folder for those of that one")
    for note in written.notes:
        say(notes, note)
    say(Console(), f"{written.path} ({written.bytes / MEGABYTE:.1f} MB, {counted(written.annotations, 'annotation')})")


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


def _as_json(written: Written, place: Place) -> dict[str, object]:
    return {
        "path": str(written.path),
        "run": str(place.run),
        "bytes": written.bytes,
        "annotations": written.annotations,
        "listed": written.listed,
        "with_evidence": written.with_evidence,
        "ablation": place.ablation is not None,
        "notes": list(written.notes),
    }
