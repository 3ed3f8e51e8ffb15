"""`agent annotate`: labels pairs and writes a run folder. Other commands that annotate pairs share its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import typer

from agent.annotator import Annotator
from agent.cli.estimate import report_estimate
from agent.cli.exit_codes import DONE, SOME_ERRORS, STOPPED
from agent.cli.interrupts import run_interruptible
from agent.cli.options import RunOptions
from agent.cli.progress import Display
from agent.cli.running import check_writable, choose_folder, describe_finished, print_input_notes, print_stop
from agent.cli.settings import ChosenSettings, print_unused_options
from agent.cli.summary import as_json, as_table
from agent.cli.text import Console, one_line, print_json, print_table, print_text
from agent.config import Config
from agent.datasets.fields import Pairs
from agent.datasets.reading import Dataset, read_pairs
from agent.errors import RunStopped
from agent.evaluation.forecast import Forecast, forecast_run
from agent.evaluation.tally import Observation, Tally
from agent.events import Note
from agent.llm.models import Models
from agent.pipeline.graph import Variant, load_variant
from agent.runs.store import files
from agent.runs.store.run_view import RunView, load_run
from agent.text import Table, build_table
from agent.tracing import export_traces
from agent.types import Annotation
from agent.views.story import describe_path

_MAX_LISTED = 40


@dataclass(frozen=True)
class RunSetup:
    """The pairs, variant, models, settings and folder of a run."""

    pairs: Dataset
    variant: Variant
    models: Models
    config: Config
    cache: Path
    prompts: Path | None
    out: Path
    options: RunOptions

    def create_annotator(self, **more: Any) -> Annotator:
        """Create an annotator with these settings. `more` contains its other arguments."""
        return Annotator(
            model=self.models,
            variant=self.variant,
            prompts=self.prompts,
            unsupported=self.options.unsupported,
            config=self.config,
            **more,
        )


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of a run.

    If the run stopped early, `stop_error` is the reason, and `tally` and `annotations` are empty. `new_annotations`
    counts the annotations from this session. `annotations` is also empty if there are too many annotations to list.
    """

    setup: RunSetup
    seconds: float
    new_annotations: int
    stop_error: KeyboardInterrupt | RunStopped | None = None
    tally: Tally = field(default_factory=Tally)
    annotations: Sequence[Annotation] = ()

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        if self.stop_error is not None:
            return STOPPED
        return SOME_ERRORS if self.tally.errors else DONE


def run(
    pairs: list[Path],
    without: tuple[str, ...],
    options: RunOptions,
    *,
    dry_run: bool = False,
) -> None:
    """Annotate pairs, show progress and print a summary. In a dry run, only print an estimate.

    Raises:
        UsageError: invalid options or input.
        typer.Exit: with exit code 0 (done), 1 (some errors) or 3 (stopped).
    """
    console = Console(stderr=True)
    # an estimate calls no model, so no API key is needed
    setup = read_setup(pairs, without, options, console, api_key="none" if dry_run else None)
    if dry_run:
        report_estimate(forecast_pairs(setup), setup.out, as_json=options.as_json)
        return
    outcome = annotate_pairs(setup, console)
    if outcome.stop_error is None and not options.as_json:
        print_outcome(outcome)
    elif outcome.stop_error is None:
        with load_run(setup.out) as view:
            print_json(
                as_json(
                    outcome.tally,
                    run=str(setup.out),
                    wall_seconds=round(outcome.seconds, 3),
                    annotated_now=outcome.new_annotations,
                    spent_usd=view.spent_usd(),
                    replies_elsewhere=view.replies_elsewhere,
                )
            )
    print_remedy(outcome, console)
    raise typer.Exit(outcome.exit_code)


def read_setup(
    pairs: list[Path],
    without: tuple[str, ...],
    options: RunOptions,
    console: Console,
    *,
    overrides: Mapping[str, Any] | None = None,
    api_key: str | None = None,
) -> RunSetup:
    """Read the pairs and the settings. `overrides` takes precedence over all other sources of settings.

    Raises:
        UsageError: invalid options or input.
    """
    settings = ChosenSettings(console, options, overrides=overrides)
    dataset = read_pairs(pairs, mapping=options.field_map, on_bad_line=options.on_bad_line)
    print_input_notes(dataset, console)
    models = settings.models(api_key=api_key)
    chosen = load_variant(settings.config.variant)
    for node in without:
        chosen = chosen.without(node)
    return RunSetup(
        pairs=dataset,
        variant=chosen,
        models=models,
        config=settings.config,
        cache=settings.cache,
        prompts=settings.prompts,
        out=options.out or choose_folder(dataset, chosen.name, models.join_names()),
        options=options,
    )


def annotate_pairs(setup: RunSetup, console: Console) -> RunOutcome:
    """Annotate the pairs and show progress. Return an outcome even if the run stops early.

    Raises:
        UsageError: the run cannot start with these settings.
        RunFolderError: the folder is damaged, is in use, or belongs to a different run.
    """
    options, config = setup.options, setup.config
    check_writable(setup.out, setup.cache, named=options.out is not None)
    print_unused_options(console, options, [setup.variant], setup.models)
    stop_error: KeyboardInterrupt | RunStopped | None = None
    with Display(console) as display, export_traces(config.tracing, lambda text: display(Note(text))):
        annotator = setup.create_annotator(
            run_dir=setup.out, retry_errors=options.retry_errors, cache=setup.cache, on_event=display
        )
        try:
            run_interruptible(annotate_all(annotator, setup.pairs, options.limit))
        except (KeyboardInterrupt, RunStopped) as error:
            stop_error = error
    outcome = RunOutcome(setup, display.seconds(), display.done, stop_error)
    return outcome if stop_error else _add_tally(outcome)


def forecast_pairs(setup: RunSetup) -> Forecast | None:
    """Forecast the calls, cost and time of a run. Return None if the run is complete.

    Raises:
        UsageError: see `forecast_run`.
    """
    return forecast_run(
        setup.pairs[: setup.options.limit],
        setup.variant,
        setup.models,
        setup.config,
        prompts=setup.prompts,
        out=setup.out,
        cache=setup.cache,
        retry_errors=setup.options.retry_errors,
    )


async def annotate_all(annotator: Annotator, pairs: Pairs, limit: int | None = None) -> None:
    async with annotator:
        async for _annotation in annotator.annotate(pairs, limit=limit):
            pass  # nothing to do: the annotator stores each annotation, and the display counts it


def _add_tally(outcome: RunOutcome) -> RunOutcome:
    """Return the outcome with a tally of the selected pairs. Other pairs in the folder are not counted."""
    pairs, limit, rounds = outcome.setup.pairs, outcome.setup.options.limit, outcome.setup.config.runner.rounds
    tally, annotations = Tally(), list[Annotation]()
    with load_run(outcome.setup.out) as view:
        for rounds_of_pair in view.index.group_by_pair():
            selected = [annotation for annotation in rounds_of_pair if annotation.round < rounds]
            place = pairs.place(selected[0].id) if selected else None
            if place is not None and (limit is None or place < limit):
                tally.add(*map(Observation, selected))
                if len(annotations) <= _MAX_LISTED:
                    annotations += selected
    entries = annotations if len(annotations) <= _MAX_LISTED else []
    return replace(
        outcome, tally=tally, annotations=sorted(entries, key=lambda entry: (pairs.place(entry.id), entry.round))
    )


def print_outcome(outcome: RunOutcome) -> None:
    """Print the summary of a finished run and the paths of its files. List the annotations first if there are few."""
    console = Console(piped_width=120)
    with load_run(outcome.setup.out) as view:
        if outcome.annotations:
            print_table(console, _build_paths_table(view, outcome.annotations))
            console.print()
        console.print(
            as_table(
                outcome.tally,
                outcome.seconds,
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


def print_remedy(outcome: RunOutcome, console: Console) -> None:
    """Print how to continue if the run stopped early or if pairs ended in an error."""
    if outcome.stop_error is not None:
        finished = describe_finished(outcome.setup.out, outcome.setup.config.runner.rounds)
        verb = "is" if finished.startswith("1 ") else "are"
        stored = f"{finished} {verb} finished and stored in {outcome.setup.out}." if finished else ""
        print_stop(console, outcome.stop_error, stored)
    elif outcome.tally.errors:
        print_text(console, "Pass --retry-errors to retry the pairs that ended in an error.")
