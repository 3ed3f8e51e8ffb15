"""`agent annotate`: labels a file of pairs into a run folder."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import typer
from rich.console import Console

from agent.annotator import Annotator
from agent.cli import DONE, SOME_ERRORS, STOPPED, stories
from agent.cli.progress import Display
from agent.cli.running import to_its_end
from agent.cli.settings import read_config
from agent.cli.summary import Summary, Tally, as_json, as_table
from agent.cli.text import say
from agent.datasets import Dataset, parse_mapping, read_pairs
from agent.errors import RunFolderError, RunStopped, UsageError
from agent.graph import load_variant
from agent.llm.models import Models
from agent.store.run_view import load_run

_PIPED_WIDTH = 120


@dataclass(frozen=True)
class Request:
    """What the command line asked for."""

    pairs: Path
    out: Path | None
    models: tuple[str, ...]
    model_options: Mapping[str, Any]
    without: tuple[str, ...]
    limit: int | None
    field_map: str | None
    on_bad_line: Literal["fail", "skip"]
    unsupported: Literal["fail", "judge", "skip"]
    retry_errors: bool
    cache: Path
    prompts: Path | None
    settings: Mapping[str, Any]
    more_settings: tuple[str, ...]
    as_json: bool


def run(request: Request) -> None:
    """Annotate, show progress, and close with a summary.

    Raises:
        UsageError: wrong usage or input.
        RunStopped: the run cannot go on; the message is followed by how to resume.
        typer.Exit: with the exit code of the design (0 done, 1 some errors, 3 stopped).
    """
    console = Console(stderr=True)
    config = read_config(request.settings, request.more_settings)
    dataset = _read(request, console)
    models = Models.from_options(request.models, **{k: v for k, v in request.model_options.items() if v is not None})
    out = request.out or _default_folder(request, config.variant, models)
    _check_writable(out, request.cache)
    with Display(console) as display:
        annotator = Annotator(
            model=models,
            without=request.without,
            prompts=request.prompts,
            unsupported=request.unsupported,
            run_dir=out,
            cache=request.cache,
            retry_errors=request.retry_errors,
            config=config,
            on_event=display,
        )
        try:
            summary = to_its_end(_annotate(annotator, dataset, request.limit))
        except KeyboardInterrupt:
            _tell_how_to_resume(console, "Interrupted.", out)
            raise typer.Exit(STOPPED) from None
        except RunStopped as error:
            _tell_how_to_resume(console, f"Stopped: {error}", out)
            raise typer.Exit(STOPPED) from error
    _close(request, console, summary, display, out)


async def _annotate(annotator: Annotator, dataset: Dataset, limit: int | None) -> Summary:
    tally = Tally()
    async with annotator:
        async for annotation in annotator.annotate(dataset.all_pairs, limit=limit):
            tally.add(annotation)
    return tally.summary()


def _check_writable(out: Path, cache: Path | None) -> None:
    for option, folder in (("-o", out), ("--cache", None if cache is None else cache.parent)):
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise UsageError(f"{folder}: is a file; give a folder ({option})") from error
        except OSError as error:
            raise UsageError(f"{option}: the folder {folder} cannot be made: {error.strerror}") from error


def _read(request: Request, console: Console) -> Dataset:
    mapping = None if request.field_map is None else parse_mapping(request.field_map)
    dataset = read_pairs(request.pairs, mapping=mapping, on_bad_line=request.on_bad_line, limit=request.limit)
    for note in dataset.notes:
        say(console, f"note: {note}")
    if dataset.bad_lines:
        first = dataset.bad_lines[0]
        say(console, f"skipped {len(dataset.bad_lines)} bad lines, the first: line {first.line}: {first.cause}")
    return dataset


def _default_folder(request: Request, variant: str, models: Models) -> Path:
    variant = "-without-".join([load_variant(variant).name, *request.without])
    stem = re.sub(r"\.jsonl?(\.gz)?$", "", request.pairs.name)
    name = f"{stem}-{variant}-{models.label()}"
    return Path("runs") / (re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._") or "run")


def _tell_how_to_resume(console: Console, what: str, out: Path) -> None:
    say(console, what)
    if kept := _finished(out):
        say(console, f"{kept} pairs are finished and kept in {out}.")
    say(console, f"The same command goes on from there:\n  {shlex.join(['agent', *sys.argv[1:]])}")


def _finished(out: Path) -> int:
    try:
        with load_run(out) as view:
            return len(view.index.done())
    except RunFolderError:
        return 0


def _close(request: Request, console: Console, summary: Summary, display: Display, out: Path) -> None:
    if request.as_json:
        more = {"run": str(out), "wall_seconds": round(display.seconds(), 3), "annotated_now": display.done}
        typer.echo(json.dumps(as_json(summary, **more)))
    else:
        out_console = Console() if sys.stdout.isatty() else Console(width=_PIPED_WIDTH)
        if summary.pairs <= stories.MOST_PAIRS:
            with load_run(out) as view:
                out_console.print(stories.table(view), end="\n\n")
        out_console.print(as_table(summary, display.seconds()))
        say(Console(), f"\n{out / 'annotations.jsonl'}")
    if summary.errors:
        say(console, "Pairs with errors are tried again with --retry-errors.")
    raise typer.Exit(SOME_ERRORS if summary.errors else DONE)
