"""`agent annotate`: labels a file of pairs into a run folder."""

from __future__ import annotations

import sys
from collections.abc import Set
from pathlib import Path

import typer
from rich.table import Table
from rich.text import Text

from agent.annotator import Annotator
from agent.cli import DONE, SOME_ERRORS, estimate
from agent.cli.options import RunOptions
from agent.cli.progress import Display
from agent.cli.running import check_writable, default_folder, explain_stop, finished, print_oddities, run_interruptible
from agent.cli.settings import Defaults, note_without_effect
from agent.cli.summary import as_json, as_table
from agent.cli.text import Console, one_line, print_json, say
from agent.datasets import Dataset, read_pairs
from agent.errors import RunStopped, UsageError
from agent.evaluation.tally import Seen, Tally
from agent.events import Note
from agent.graph import load_variant
from agent.store import files
from agent.store.run_view import RunView, load_run
from agent.tracing import exporting
from agent.views.story import path

_PIPED_WIDTH = 120
_MOST_PAIRS = 40


def run(
    pairs: list[Path],
    variant: str | None,
    without: tuple[str, ...],
    options: RunOptions,
    *,
    dry_run: bool = False,
    like: Path | None = None,
    summary: bool = True,
) -> None:
    """Annotate, show progress, and close with a summary where one is wanted; in a dry run only say what it would take.

    Raises:
        UsageError: wrong usage or input.
        RunStopped: the run cannot go on; the message is followed by how to resume.
        typer.Exit: with the exit code of the design (0 done, 1 some errors, 3 stopped).
    """
    console = Console(stderr=True)
    defaults = Defaults(console)
    config = defaults.config({"variant": variant, **options.configured()}, options.settings)
    dataset = read_pairs(pairs, mapping=options.field_map, on_bad_line=options.on_bad_line)
    print_oddities(dataset, console)
    if like is not None and not dry_run:
        raise UsageError("--like is for --dry-run: it names the run whose costs an estimate goes by")
    # an estimate asks nobody, and needs no key
    models = defaults.models(options, **({"api_key": "none"} if dry_run else {}))
    cache, prompts = defaults.cache(options.cache), defaults.prompts(options)
    chosen = load_variant(config.variant)
    for node in without:
        chosen = chosen.without(node)
    out = options.out or default_folder(dataset, chosen.name, models.label())
    if dry_run:
        estimate.run(
            dataset[: options.limit],
            chosen,
            models,
            config,
            prompts=prompts,
            out=out,
            like=like,
            cache=cache,
            retry_errors=options.retry_errors,
            as_json=options.as_json,
        )
        return
    check_writable(out, cache)
    note_without_effect(console, options, [chosen], models)
    with Display(console) as display, exporting(config.tracing, lambda text: display(Note(text))):
        annotator = Annotator(
            run_dir=out,
            model=models,
            variant=chosen,
            prompts=prompts,
            unsupported=options.unsupported,
            retry_errors=options.retry_errors,
            config=config,
            cache=cache,
            on_event=display,
        )
        try:
            run_interruptible(_annotate(annotator, dataset, options.limit))
        except (KeyboardInterrupt, RunStopped) as error:
            what = finished(out, config.runner.rounds)
            kept = f"{what} {'is' if what.startswith('1 ') else 'are'} finished and kept in {out}." if what else ""
            explain_stop(console, error, kept)
    with load_run(out) as view:
        tally, listed = _counted(view, dataset, options.limit, config.runner.rounds)
        if summary and options.as_json:
            more = {"run": str(out), "wall_seconds": round(display.seconds(), 3), "annotated_now": display.done}
            print_json(as_json(tally, **more, spent_usd=view.spent_usd(), replies_elsewhere=view.replies_elsewhere))
        elif summary:
            _print(tally, listed, dataset, display.seconds(), view)
    if tally.errors:
        say(console, "Pairs with errors are tried again with --retry-errors.")
    raise typer.Exit(SOME_ERRORS if tally.errors else DONE)


async def _annotate(annotator: Annotator, pairs: Dataset, limit: int | None) -> None:
    async with annotator:
        async for _annotation in annotator.annotate(pairs, limit=limit):
            pass  # it is in the folder, and the display has counted it


def _counted(view: RunView, pairs: Dataset, limit: int | None, rounds: int) -> tuple[Tally, set[tuple[str, int]]]:
    """Return what the run's first pairs amount to, and which pairs and rounds they are as long as they are few."""
    tally, listed = Tally(), set[tuple[str, int]]()
    for found in view.index.by_pair():
        wanted = [Seen(annotation) for annotation in found if annotation.round < rounds]
        place = pairs.place(found[0].id) if wanted else None
        if place is not None and (limit is None or place < limit):
            tally.add(*wanted)
            if len(listed) <= _MOST_PAIRS:
                listed.update((seen.annotation.id, seen.annotation.round) for seen in wanted)
    return tally, listed


def _print(tally: Tally, listed: Set[tuple[str, int]], pairs: Dataset, seconds: float, view: RunView) -> None:
    console = Console() if sys.stdout.isatty() else Console(width=_PIPED_WIDTH)
    if len(listed) <= _MOST_PAIRS:
        console.print(_paths(view, listed, pairs), end="\n\n")
    spent, elsewhere, kept = view.spent_usd(), view.replies_elsewhere, (view.index.pairs, len(view.index))
    console.print(as_table(tally, seconds, kept=kept, spent_usd=spent, elsewhere=elsewhere))
    say(Console(), f"\n{view.path / files.LABELS}\n{view.path / files.ANNOTATIONS}")


def _paths(view: RunView, wanted: Set[tuple[str, int]], pairs: Dataset) -> Table:
    """Return these pairs and rounds of a run, in order, with label, who decided and path."""
    found = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    rounds = any(number for _, number in wanted)
    for column in ("pair", *(["round"] if rounds else ()), "label", "decided by", "path"):
        found.add_column(column, no_wrap=column != "path")
    keys = sorted(wanted, key=lambda key: (pairs.place(key[0]), key[1]))
    for annotation in filter(None, (view.annotation(*key) for key in keys)):
        label = "error" if annotation.error else "-" if annotation.label is None else str(annotation.label)
        stages = path(annotation, view.evidence(annotation.id, annotation.round))
        pair = (one_line(annotation.id, 30), *([str(annotation.round)] if rounds else ()))
        way = " → ".join(one_line(stage, 120) for stage in stages)
        found.add_row(*map(Text, (*pair, label, one_line(annotation.decided_by or "-", 30), way)))
    return found
