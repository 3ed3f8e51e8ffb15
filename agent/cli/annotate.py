"""`agent annotate`: labels pairs and writes a run folder. Other commands that annotate pairs share its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from agent.cli.estimate import report_estimate
from agent.cli.exit_codes import DONE, SOME_ERRORS, STOPPED
from agent.cli.interrupts import run_interruptible
from agent.cli.options import RunOptions
from agent.cli.progress import Display
from agent.cli.running import check_writable, choose_folder, describe_finished, print_input_notes, print_stop
from agent.cli.settings import ChosenSettings, print_unused_options
from agent.cli.summary import as_json, as_table
from agent.cli.text import Console, one_line, print_json, print_table, print_text
from agent.datasets.fields import Pairs
from agent.datasets.reading import Dataset, read_pairs
from agent.errors import RunStopped
from agent.evaluation.forecast import forecast_run
from agent.evaluation.tally import Observation, Tally
from agent.events import Note
from agent.pipeline.graph import load_variant
from agent.runs.run import Run
from agent.runs.spec import AnnotatorOptions, RunSpec
from agent.runs.store import files
from agent.runs.store.run_view import RunView, load_run
from agent.text import Table, build_table
from agent.tracing import export_traces
from agent.types import Annotation
from agent.views.story import describe_path

_MAX_LISTED = 40


def run(pairs: list[Path], without: tuple[str, ...], options: RunOptions, *, dry_run: bool = False) -> None:
    """Annotate pairs, show progress and print a summary. In a dry run, only print an estimate.

    Raises:
        UsageError: invalid options or input.
        typer.Exit: with exit code 0 (done), 1 (some errors) or 3 (stopped).
    """
    console = Console(stderr=True)
    # an estimate calls no model, so no API key is needed
    dataset, spec, out = read_run(pairs, without, options, console, api_key="none" if dry_run else None)
    if dry_run:
        report_estimate(forecast_run(dataset[: options.limit], spec, out), out, as_json=options.as_json)
        return
    raise typer.Exit(annotate_pairs(dataset, spec, out, options, console, prints_json=options.as_json))


def read_run(
    pairs: list[Path],
    without: tuple[str, ...],
    options: RunOptions,
    console: Console,
    *,
    overrides: Mapping[str, Any] | None = None,
    api_key: str | None = None,
) -> tuple[Dataset, RunSpec, Path]:
    """Read the pairs and the settings, and return the pairs, the run's specification and its folder.

    `overrides` takes precedence over all other sources of settings.

    Raises:
        UsageError: invalid options or input.
    """
    settings = ChosenSettings(console, options, overrides=overrides)
    dataset = read_pairs(pairs, mapping=options.field_map, on_bad_line=options.on_bad_line)
    print_input_notes(dataset, console)
    models = settings.models(api_key=api_key)
    variant = load_variant(settings.config.variant)
    out = options.out or choose_folder(dataset, "-without-".join((variant.name, *without)), models.join_names())
    arguments: AnnotatorOptions = {
        "model": models,
        "variant": variant,
        "without": without,
        "prompts": settings.prompts,
        "unsupported": options.unsupported,
        "config": settings.config,
        "run_dir": out,
        "cache": settings.cache,
        "retry_errors": options.retry_errors,
    }
    return dataset, RunSpec.of(arguments), out


def annotate_pairs(
    pairs: Dataset, spec: RunSpec, out: Path, options: RunOptions, console: Console, *, prints_json: bool
) -> int:
    """Annotate the pairs, show progress, print the outcome, and return the exit code.

    With `--json`, the outcome is printed only if `prints_json` is set.

    Raises:
        UsageError: the run cannot start with these settings.
        RunFolderError: the folder is damaged, is in use, or belongs to a different run.
    """
    check_writable(out, spec.cache, named=options.out is not None)
    print_unused_options(console, options, [spec.pipeline.variant], spec.models)
    rounds = spec.config.runner.rounds
    stop_error: KeyboardInterrupt | RunStopped | None = None
    with Display(console) as display, export_traces(spec.config.tracing, lambda text: display(Note(text))):
        try:
            run_interruptible(annotate_all(Run(replace(spec, emit=display)), pairs, options.limit))
        except (KeyboardInterrupt, RunStopped) as error:
            stop_error = error
    seconds = display.seconds()
    if stop_error is not None:
        finished = describe_finished(out, rounds)
        verb = "is" if finished.startswith("1 ") else "are"
        print_stop(console, stop_error, f"{finished} {verb} finished and stored in {out}." if finished else "")
        return STOPPED
    with load_run(out) as view:
        tally, annotations = _count_selected(view, pairs, options.limit, rounds)
        if not options.as_json:
            _print_outcome(view, tally, annotations, seconds)
        elif prints_json:
            sessions = {"wall_seconds": round(seconds, 3), "annotated_now": display.done, "spent_usd": view.spent_usd()}
            print_json(as_json(tally, run=str(out), **sessions, replies_elsewhere=view.replies_elsewhere))
    if tally.errors:
        print_text(console, "Pass --retry-errors to retry the pairs that ended in an error.")
    return SOME_ERRORS if tally.errors else DONE


async def annotate_all(run: Run, pairs: Pairs, limit: int | None = None) -> None:
    async with run:
        async for _annotation in run.annotate(pairs, limit=limit):
            pass  # nothing to do: the run stores each annotation, and the display counts it


def _count_selected(
    view: RunView, pairs: Dataset, limit: int | None, rounds: int
) -> tuple[Tally, Sequence[Annotation]]:
    """Count the annotations of the selected pairs. Also return the annotations, unless there are too many to list.

    Other pairs in the folder are not counted.
    """
    tally, annotations = Tally(), list[tuple[int, Annotation]]()
    for rounds_of_pair in view.index.group_by_pair():
        selected = [annotation for annotation in rounds_of_pair if annotation.round < rounds]
        place = pairs.place(selected[0].id) if selected else None
        if place is not None and (limit is None or place < limit):
            tally.add(*map(Observation, selected))
            if len(annotations) <= _MAX_LISTED:
                annotations += ((place, annotation) for annotation in selected)
    entries = annotations if len(annotations) <= _MAX_LISTED else []
    return tally, [annotation for _, annotation in sorted(entries, key=lambda entry: (entry[0], entry[1].round))]


def _print_outcome(view: RunView, tally: Tally, annotations: Sequence[Annotation], seconds: float) -> None:
    """Print the summary of a finished run and the paths of its files. List the annotations first if there are few."""
    console = Console(piped_width=120)
    if annotations:
        print_table(console, _build_paths_table(view, annotations))
        console.print()
    console.print(
        as_table(
            tally,
            seconds,
            in_folder=(view.index.pair_count, len(view.index)),
            spent_usd=view.spent_usd(),
            elsewhere=view.replies_elsewhere,
        )
    )
    print_text(Console(), f"\n{view.path / files.LABELS}\n{view.path / files.ANNOTATIONS}")


def _build_paths_table(view: RunView, annotations: Sequence[Annotation]) -> Table:
    rounds = any(annotation.round for annotation in annotations)
    columns, rows = ("pair", *(["round"] if rounds else ()), "label", "decided by", "path"), []
    for annotation in annotations:
        label = "error" if annotation.error else "-" if annotation.label is None else str(annotation.label)
        stages = describe_path(annotation, view.evidence(annotation.id, annotation.round))
        pair = (one_line(annotation.id, 30), *([annotation.round] if rounds else ()))
        route = " → ".join(one_line(stage, 120) for stage in stages)
        rows.append((*pair, label, one_line(annotation.decided_by or "-", 30), route))
    return build_table(columns, rows, left=columns)
