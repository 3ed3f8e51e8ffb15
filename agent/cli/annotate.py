"""`agent annotate`: labels a file of pairs into a run folder."""

from __future__ import annotations

import sys
from collections.abc import Set
from pathlib import Path

import typer

from agent.annotator import Annotator
from agent.cli import DONE, SOME_ERRORS, STOPPED, stories
from agent.cli.console import Console
from agent.cli.effects import tell_without_effect
from agent.cli.progress import Display
from agent.cli.run_options import RunOptions
from agent.cli.running import to_its_end
from agent.cli.settings import read_config
from agent.cli.starting import check_writable, default_folder, finished, read_input, tell_how_to_go_on
from agent.cli.summary import as_json, as_table
from agent.cli.text import print_json, say
from agent.datasets import Dataset
from agent.errors import RunStopped
from agent.evaluation.tally import Seen, Tally
from agent.graph import load_variant
from agent.llm.models import Models
from agent.store import files
from agent.store.run_view import load_run

_PIPED_WIDTH = 120


def run(pairs: Path, variant: str, without: tuple[str, ...], options: RunOptions) -> None:
    """Annotate, show progress, and close with a summary.

    Raises:
        UsageError: wrong usage or input.
        RunStopped: the run cannot go on; the message is followed by how to resume.
        typer.Exit: with the exit code of the design (0 done, 1 some errors, 3 stopped).
    """
    console = Console(stderr=True)
    config = read_config({"variant": variant, **options.configured()}, options.settings or ())
    dataset = read_input(pairs, options, console)
    models = Models.from_options(options.model or (), **options.model_options())
    chosen = load_variant(config.variant)
    for node in without:
        chosen = chosen.without(node)
    out = options.out or default_folder(pairs, chosen.name, models.label())
    check_writable(out, options.cache)
    tell_without_effect(console, options, [chosen], models)
    with Display(console) as display:
        annotator = Annotator(
            model=models,
            variant=chosen,
            prompts=options.prompts,
            unsupported=options.unsupported,
            run_dir=out,
            cache=options.cache,
            retry_errors=options.retry_errors,
            config=config,
            on_event=display,
        )
        try:
            tally, annotated = to_its_end(_annotate(annotator, dataset, options.limit))
        except KeyboardInterrupt:
            tell_how_to_go_on(console, None, _kept(out, config.runner.rounds))
            raise typer.Exit(STOPPED) from None
        except RunStopped as error:
            tell_how_to_go_on(console, error, _kept(out, config.runner.rounds))
            raise typer.Exit(STOPPED) from error
    _close(options.as_json, console, tally, annotated, display, out)


async def _annotate(
    annotator: Annotator, dataset: Dataset, limit: int | None
) -> tuple[Tally, frozenset[tuple[str, int]]]:
    """Return what it amounts to, and the pairs and rounds that are in it as long as they are few."""
    tally, annotated = Tally(), set[tuple[str, int]]()
    async with annotator:
        async for annotation in annotator.annotate(dataset.all_pairs, limit=limit):
            tally.add(Seen(annotation))
            if len(annotated) <= stories.MOST_PAIRS:
                annotated.add((annotation.id, annotation.round))
    return tally, frozenset(annotated)


def _kept(out: Path, rounds: int) -> str:
    what = finished(out, rounds)
    return f"{what} {'is' if what.startswith('1 ') else 'are'} finished and kept in {out}." if what else ""


def _close(
    machine: bool,
    console: Console,
    tally: Tally,
    annotated: Set[tuple[str, int]],
    display: Display,
    out: Path,
) -> None:
    if machine:
        more = {"run": str(out), "wall_seconds": round(display.seconds(), 3), "annotated_now": display.done}
        with load_run(out) as view:
            print_json(as_json(tally, **more, spent_usd=view.spent_usd(), replies_elsewhere=view.replies_elsewhere))
    else:
        out_console = Console() if sys.stdout.isatty() else Console(width=_PIPED_WIDTH)
        with load_run(out) as view:
            if len(annotated) <= stories.MOST_PAIRS:
                out_console.print(stories.table(view, annotated), end="\n\n")
            spent, elsewhere, kept = view.spent_usd(), view.replies_elsewhere, view.index.done()
            table = as_table(tally, display.seconds(), kept=kept, spent_usd=spent, elsewhere=elsewhere)
            out_console.print(table)
        say(Console(), f"\n{out / files.LABELS}\n{out / files.ANNOTATIONS}")
    if tally.errors:
        say(console, "Pairs with errors are tried again with --retry-errors.")
    raise typer.Exit(SOME_ERRORS if tally.errors else DONE)
