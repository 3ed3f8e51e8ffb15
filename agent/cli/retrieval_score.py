"""Implements `agent retrieval score` and `agent retrieval compare`: prints scores and tests as tables or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

from rich.cells import cell_len
from rich.text import Text

from agent.cli.progress import Steps
from agent.cli.running import stoppable
from agent.cli.text import Console, add_row, make_table, one_line, print_json, print_text
from agent.errors import UsageError
from agent.evaluation.statistics import BootstrapSettings, format_interval, format_number
from agent.retrieval.folder import COMPARISON, SCORES, SCORES_CSV, SCORES_JSONL, RetrievalFolder, open_for_writing
from agent.retrieval.measures import get_metric
from agent.retrieval.results import Comparisons, LabelSource, RetrievalResult, RetrievalScores, WhichQueries
from agent.retrieval.scores import update_comparison, update_scores
from agent.retrieval.search import import_ranking
from agent.views.searchers import (
    HIT_COLUMNS,
    STABILITY,
    STABILITY_COLUMNS,
    build_stability_rows,
    describe_comparison,
    describe_scores,
    format_median_rank,
    format_p_value,
)

# the width of a formatted interval, with a space on each side
_COLUMN = 16
_SIZES = (10, 16, 7, 7, 11)
_FIGURES = sum(_SIZES) + len(_SIZES)


def score(
    path: Path,
    rankings: Sequence[str],
    metrics: Sequence[str],
    *,
    judge: LabelSource,
    which: WhichQueries | None,
    settings: BootstrapSettings,
    alpha: bool,
    as_json: bool,
) -> None:
    """Import rankings, score all rankings in the folder, write the scores and print them.

    Raises:
        UsageError: the folder or metric does not exist, a ranking is malformed, or there is no query to score.
        StorageError: the scores cannot be written.
        typer.Exit: the command stopped.
    """
    imports = [_parse_import(ranking) for ranking in rankings]
    for metric in metrics:
        get_metric(metric)  # rejects unknown metrics before importing rankings
    with _open(path) as (folder, steps):
        benchmark = folder.reopen_benchmark() if imports else None
        for name, file in imports:
            if benchmark is not None:
                import_ranking(folder, benchmark, name, file)
        scores = update_scores(
            folder, judge=judge, metrics=metrics, which=which, settings=settings, alpha=alpha, progress=steps
        )
    if as_json:
        print_json(scores.model_dump(mode="json"))
    else:
        _print_scores(scores)
        print_text(Console(), f"scores: {path / SCORES}; scores per query: {SCORES_CSV} and {SCORES_JSONL}")
    print_notes(folder, scores)


def compare(
    path: Path, metrics: Sequence[str], searchers: Sequence[str], against: str | None, *, as_json: bool
) -> None:
    """Test the differences between the searchers in a folder, write the results and print them.

    Raises:
        UsageError: the folder, metric or searcher does not exist, or there are fewer than two searchers.
        StorageError: the results cannot be written.
        typer.Exit: the command stopped.
    """
    with _open(path) as (folder, steps):
        comparisons = update_comparison(folder, metrics=metrics, searchers=searchers, against=against, progress=steps)
    if as_json:
        print_json(comparisons.model_dump(mode="json"))
    else:
        _print_comparisons(comparisons)
        print_text(Console(), f"comparison: {path / COMPARISON}")
    print_notes(folder, comparisons)


def print_notes(folder: RetrievalFolder, result: RetrievalResult | None = None) -> None:
    """Print the notes on a result, and a note for each outdated result in the folder, to standard error.

    Raises:
        RunFolderError: a result is damaged.
    """
    console = Console(stderr=True)
    for note in (*(result.notes if result else ()), *folder.describe_out_of_date_results()):
        print_text(console, f"note: {note}")


@contextmanager
def _open(path: Path) -> Iterator[tuple[RetrievalFolder, Steps]]:
    console = Console(stderr=True)
    with stoppable(console), open_for_writing(path) as folder, Steps(console) as steps:
        yield folder, steps


def _parse_import(ranking: str) -> tuple[str, Path]:
    name, separator, file = ranking.partition("=")
    if not (name and separator and file):
        raise UsageError(f"--ranking {ranking}: expected NAME=FILE, such as mine=results.trec")
    return name, Path(file)


def _print_scores(scores: RetrievalScores) -> None:
    """Print one row per searcher and one column per metric, split into tables that fit the terminal."""
    console = Console()
    columns = {
        metric: [
            f"{format_number(searcher.values[metric].mean)}\n{format_interval(searcher.values[metric].interval)}"
            for searcher in scores.searchers
        ]
        for metric in scores.metrics
    }
    columns[HIT_COLUMNS[0]] = [f"{searcher.found:,}" for searcher in scores.searchers]
    columns[HIT_COLUMNS[1]] = [format_median_rank(searcher) for searcher in scores.searchers]
    names = [one_line(searcher.searcher) for searcher in scores.searchers]
    widest = min(max(map(cell_len, names)), console.width // 2)
    columns_per_table = max(1, (console.width - widest) // _COLUMN)
    for start in range(0, len(columns), columns_per_table):
        group = list(columns)[start : start + columns_per_table]
        table = make_table("", *group)
        table.columns[0].overflow, table.columns[0].width = "fold", widest
        for row, name in enumerate(names):
            table.add_row(Text(name), *(Text(columns[column][row]) for column in group))
        console.print(table)
        console.print()
    if rows := build_stability_rows(scores):
        table = make_table(*STABILITY_COLUMNS)
        for cells in rows:
            add_row(table, *cells)
        console.print(table)
        print_text(console, f"{STABILITY}\n")
    elif scores.stability is not None:
        print_text(
            console,
            "Cronbach's alpha requires at least two searchers and two test sets. Each test set contains the queries "
            "with the same number of relevant codes (2, 3, 4 or 5).\n",
        )
    for line in describe_scores(scores):
        print_text(console, line)


def _print_comparisons(comparisons: Comparisons) -> None:
    """Print one line per comparison. If the terminal is too narrow, names are printed on separate lines."""
    console = Console()
    names = [one_line(f"{pair.first} − {pair.second}", limit=1000) for pair in comparisons.comparisons]
    widest = max(map(cell_len, names), default=0)
    on_own_lines = widest + _FIGURES > console.width
    heads = "difference", f"{comparisons.level:.0%} interval", "p boot.", "p rand.", "queries"
    for metric, group in groupby(zip(comparisons.comparisons, names, strict=True), key=lambda entry: entry[0].metric):
        if on_own_lines:
            print_text(console, metric, style="bold")
        print_text(
            console,
            _format_figures("" if on_own_lines else metric, 0 if on_own_lines else widest, *heads),
            style="bold",
        )
        for pair, name in group:
            tests = format_p_value(pair.bootstrap_adjusted), format_p_value(pair.randomisation_adjusted)
            queries = f"{pair.better}:{pair.worse}:{pair.equal}"
            figures = f"{pair.difference:+.3f}", format_interval(pair.interval), *tests, queries
            if on_own_lines:
                print_text(console, name)
            print_text(console, _format_figures("" if on_own_lines else name, 0 if on_own_lines else widest, *figures))
        console.print()
    print_text(console, describe_comparison(comparisons))


def _format_figures(name: str, width: int, *cells: str) -> str:
    cells_text = (f"{cell:>{size}}" for cell, size in zip(cells, _SIZES, strict=True))
    return " ".join([name + " " * (width - cell_len(name)), *cells_text])
