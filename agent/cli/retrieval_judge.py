"""`agent retrieval judge`: the annotator judges what searchers found and nobody judged; what that changes is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from agent.cli import DONE, annotate
from agent.cli.options import RunOptions
from agent.cli.text import Console, one_line, print_json, say
from agent.datasets.benchmark import Grades
from agent.errors import UsageError
from agent.evaluation.statistics import Settings
from agent.retrieval.folder import JUDGED, RetrievalFolder, held
from agent.retrieval.judging import Judged, fill_pool, gained, merged, read_judged, write_judgements
from agent.retrieval.measures import DEFAULT
from agent.retrieval.rankings import read_trec
from agent.retrieval.scores import RetrievalScores, score
from agent.store import files
from agent.wording import counted

_NO_INTERVALS = Settings(resamples=100)
"""Intervals are not shown."""


def run(folder: Path, depth: int, variant: str | None, without: tuple[str, ...], options: RunOptions) -> None:
    """Pool, annotate, write whose judgements there are, and print what they change.

    Raises:
        UsageError: wrong usage or input.
        RunStopped: as `annotate.run`.
        typer.Exit: with the exit code of `agent annotate`; 3 when it stopped early, and the same command goes on.
    """
    console = Console(stderr=True)
    if options.out is not None or options.field_map is not None:
        raise UsageError(f"--out and --map have no place here: pairs and run are those of {folder} ({JUDGED}/)")
    with held(folder) as opened:
        if not opened.rankings:
            raise UsageError(f"{folder}: has no rankings; make some by: agent retrieval run BENCHMARK -o {folder}")
        benchmark = opened.benchmark()
        pool = fill_pool(opened, benchmark, depth)
    say(console, f"{counted(pool.pairs, 'pair')} to judge in {pool.path}, {pool.added:,} of them new")
    code = DONE
    if pool.pairs:
        within = replace(options, out=folder / JUDGED)
        try:
            annotate.run([pool.path], variant, without, within, summary=not options.as_json)
        except typer.Exit as ended:
            # what was judged before it stopped counts as well
            code = ended.exit_code
    with held(folder) as opened:
        before, judged = opened.grades(), Judged("nobody", {})
        if (folder / JUDGED / files.ANNOTATIONS).exists():
            judged = read_judged(opened)
            write_judgements(opened, judged)
        after = merged(before, judged.grades)
        scores = [_scores(opened, list(benchmark.queries), len(benchmark.codes), each) for each in (before, after)]
    _print(folder, judged, pool.pairs, gained(before, after), scores, as_json=options.as_json)
    raise typer.Exit(code)


def _scores(
    folder: RetrievalFolder, queries: list[str], codes: int, grades: Mapping[str, Grades]
) -> RetrievalScores | None:
    """Return the scores by these grades, None where no query has a relevant code."""
    if not any(grade > 0 for each in grades.values() for grade in each.values()):
        return None
    rankings = {name: read_trec(folder.ranking(name)) for name in folder.rankings}
    return score(str(folder.about["name"]), queries, codes, grades, rankings, settings=_NO_INTERVALS).scores


def _values(scores: RetrievalScores | None, searcher: str) -> dict[str, float | None]:
    of = {each.searcher: each for each in scores.searchers} if scores else {}
    if searcher not in of:
        return dict.fromkeys(DEFAULT)
    return {name: value.mean for name, value in of[searcher].values.items()}


def _print(
    folder: Path, judged: Judged, pairs: int, gained: int, scores: list[RetrievalScores | None], *, as_json: bool
) -> None:
    counts = {name: value for name, value in asdict(judged).items() if name != "grades"}
    pending = pairs - judged.relevant - judged.irrelevant - judged.undecided - judged.errors
    names = dict.fromkeys(each.searcher for found in scores if found for each in found.searchers)
    values = {name: [_values(found, name) for found in scores] for name in names}
    scored = [found.scored if found else 0 for found in scores]
    if as_json:
        searchers = {
            name: {metric: {"before": one[metric], "after": other[metric]} for metric in other}
            for name, (one, other) in values.items()
        }
        queries = {"before": scored[0], "after": scored[1], "gained": gained}
        state: dict[str, Any] = {"folder": str(folder), "pool": pairs, **counts, "pending": pending}
        print_json({**state, "queries": queries, "searchers": searchers})
        return
    console = Console()
    say(console, "")
    for name, (one, other) in values.items():
        console.print(Text(one_line(name), style="bold"))
        console.print(_table(one, other))
        say(console, "")
    say(
        console,
        f"judged by {judged.judge}: {judged.relevant:,} relevant, {judged.irrelevant:,} not · no judgement: "
        f"{judged.undecided:,} undecided, {counted(judged.errors, 'error')}, {pending:,} not yet",
    )
    say(
        console,
        f"queries with a relevant code, over which metrics are means: {scored[0]:,} before, {scored[1]:,} after; "
        f"{counted(gained, 'query', 'queries')} gained the first",
    )


def _table(one: Mapping[str, float | None], other: Mapping[str, float | None]) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="")
    for number, heading in enumerate(("", "before", "after", "change")):
        table.add_column(heading, justify="right" if number else "left")
    for metric, after in other.items():
        before = one[metric]
        change = "–" if before is None or after is None else f"{after - before:+.3f}"
        table.add_row(*map(Text, (metric, _number(before), _number(after), change)))
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
