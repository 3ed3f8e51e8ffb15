"""`agent retrieval judge`: the annotator judges what searchers found and nobody judged; what that changes is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from agent.cli import DONE
from agent.cli.annotating import annotate_pairs, print_outcome, print_remedy, read_setup
from agent.cli.options import PoolOptions
from agent.cli.progress import Steps
from agent.cli.retrieval_score import scored
from agent.cli.text import Console, add_row, headed, one_line, print_json, say
from agent.errors import RunFolderError, UsageError
from agent.evaluation.statistics import BootstrapSettings, number_text
from agent.retrieval.folder import JUDGED, POOL, RetrievalFolder, held
from agent.retrieval.judging import Judged, Labels, fill_pool, labels, merged, read_judged, write_judgements
from agent.retrieval.measures import DEFAULT
from agent.retrieval.scores import RetrievalScores
from agent.store import files
from agent.wording import counted

Changes = dict[str, dict[str, dict[str, float | None]]]


def run(folder: Path, depth: int, without: tuple[str, ...], options: PoolOptions) -> None:
    """Pool, annotate, write whose judgements there are, and print what they change.

    Raises:
        UsageError: wrong usage or input.
        RunFolderError: a folder is damaged or in use, or its judgements were made with other settings.
        typer.Exit: with the exit code of `agent annotate`; 3 when it stopped early, and the same command goes on.
    """
    console = Console(stderr=True)
    with held(folder) as opened:
        if not opened.rankings:
            raise UsageError(f"{folder}: has no rankings; make some by: agent retrieval run BENCHMARK -o {folder}")
        pairs, new = fill_pool(opened, opened.benchmark(), depth)
    pool = folder / POOL
    say(console, f"{counted(pairs, 'pair')} to judge in {pool}, {new:,} of them new")
    code = DONE
    if pairs:
        within = replace(options, out=folder / JUDGED)
        try:
            outcome = annotate_pairs(read_setup([pool], without, within, console), console)
        except RunFolderError as error:
            # its own remedy is an option that is none here
            raise RunFolderError(f"{error}\nTo judge by other settings, move {within.out} away first.") from error
        if outcome.stopped is None and not options.as_json:
            print_outcome(outcome)
        print_remedy(outcome, console)
        code = outcome.exit_code  # what was judged before it stopped counts as well
    with held(folder) as opened, Steps(console) as steps:
        own, judged = labels(opened, "benchmark"), Judged("nobody", {})
        if (folder / JUDGED / files.ANNOTATIONS).exists():
            judged = read_judged(opened)
            write_judgements(opened, judged)
        all_labels = own._replace(judge="labels", grades=merged(own.grades, judged.grades))
        before, after = (_scores(opened, each, steps) for each in (own, all_labels))
    state = {name: value for name, value in vars(judged).items() if name != "grades"}
    state["pending"] = pairs - judged.relevant - judged.irrelevant - judged.undecided - judged.errors
    queries = dict(zip(("before", "after"), (found.scored if found else 0 for found in (before, after)), strict=True))
    # no label is taken back, so that a query that counts goes on to
    queries["gained"] = queries["after"] - queries["before"]
    changes = _changes(before, after)
    if options.as_json:
        print_json({"folder": str(folder), "pool": pairs, **state, "queries": queries, "searchers": changes})
    else:
        _print(state, queries, changes)
    raise typer.Exit(code)


def _scores(folder: RetrievalFolder, by: Labels, steps: Steps) -> RetrievalScores | None:
    """Return the scores by these labels, None where no query has a relevant code."""
    if not any(grade > 0 for grades in by.grades.values() for grade in grades.values()):
        return None
    # intervals are not shown
    return scored(folder, by, DEFAULT, None, BootstrapSettings(resamples=1), steps).scores


def _changes(before: RetrievalScores | None, after: RetrievalScores | None) -> Changes:
    """Return by searcher and metric the mean before and after."""
    changes: Changes = {}
    for when, found in (("before", before), ("after", after)):
        for each in found.searchers if found else ():
            for metric, value in each.values.items():
                of = changes.setdefault(each.searcher, {}).setdefault(metric, {"before": None, "after": None})
                of[when] = value.mean
    return changes


def _print(state: Mapping[str, Any], queries: Mapping[str, int], changes: Changes) -> None:
    console = Console()
    say(console, "")
    for searcher, metrics in changes.items():
        table = headed(one_line(searcher), "before", "after", "change")
        for metric, of in metrics.items():
            before, after = of["before"], of["after"]
            change = "–" if before is None or after is None else f"{after - before:+.3f}"
            add_row(table, metric, number_text(before), number_text(after), change)
        console.print(table)
        say(console, "")
    say(
        console,
        f"judged by {state['judge']}: {state['relevant']:,} relevant, {state['irrelevant']:,} not; no judgement: "
        f"{state['undecided']:,} undecided, {counted(state['errors'], 'error')}, {state['pending']:,} not yet",
    )
    say(
        console,
        f"means are over the queries with a relevant code: {queries['before']:,} before, {queries['after']:,} after; "
        f"{counted(queries['gained'], 'query', 'queries')} gained the first one",
    )
