"""Implements `agent retrieval score` and `agent retrieval compare`: prints results as tables or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from agent.cli.progress import Steps
from agent.cli.running import stoppable
from agent.cli.text import Console, print_figures, print_json, print_text
from agent.errors import UsageError
from agent.evaluation.statistics import BootstrapSettings
from agent.retrieval.blindness import update_blindness
from agent.retrieval.folder import (
    BLINDNESS,
    COMPARISON,
    SCORES,
    SCORES_CSV,
    SCORES_JSONL,
    RetrievalFolder,
    open_for_writing,
)
from agent.retrieval.measures import get_metric
from agent.retrieval.results import LabelSource, RetrievalResult, WhichQueries
from agent.retrieval.reviewed import score_reviews
from agent.retrieval.scores import update_comparison, update_scores
from agent.retrieval.search import import_ranking
from agent.retrieval.searchers.presets import EmbedderOptions
from agent.text import Figure
from agent.views.searchers import (
    build_blindness_figures,
    build_comparison_figures,
    build_metric_figures,
    build_reviewed_figures,
)


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
    place = f"scores: {path / SCORES}; scores per query: {SCORES_CSV} and {SCORES_JSONL}"
    _print_result(folder, scores, build_metric_figures(scores), place, as_json=as_json)


def score_blindness(
    path: Path,
    mutants: Path,
    searchers: Sequence[str],
    *,
    options: EmbedderOptions,
    settings: BootstrapSettings,
    as_json: bool,
) -> None:
    """Measure whether searchers prefer right code to mutants, write the result and print it.

    Raises:
        UsageError, RunStopped: see `update_blindness`.
        StorageError: the result cannot be written.
        typer.Exit: the command stopped. To resume, run the same command again.
    """
    with _open(path) as (folder, steps):
        blindness = update_blindness(
            folder, mutants, searchers=searchers, options=options, settings=settings, progress=steps
        )
    place = f"blindness: {path / BLINDNESS}"
    _print_result(folder, blindness, build_blindness_figures(blindness), place, as_json=as_json)


def score_reviewed(
    path: Path, metrics: Sequence[str], searchers: Sequence[str], *, settings: BootstrapSettings, as_json: bool
) -> None:
    """Print scores that are corrected by reviews of whole queries.

    Raises:
        UsageError: see `score_reviews`.
        typer.Exit: the command stopped.
    """
    with _open(path) as (folder, steps):
        scores = score_reviews(folder, metrics=metrics, searchers=searchers, settings=settings, progress=steps)
    _print_result(folder, scores, build_reviewed_figures(scores), None, as_json=as_json)


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
    place = f"comparison: {path / COMPARISON}"
    _print_result(folder, comparisons, build_comparison_figures(comparisons), place, as_json=as_json)


def _print_result(
    folder: RetrievalFolder, result: RetrievalResult, figures: Sequence[Figure], place: str | None, *, as_json: bool
) -> None:
    if as_json:
        print_json(result.model_dump(mode="json"))
    else:
        print_figures(Console(), figures)
        if place is not None:
            print_text(Console(), place)
    print_notes(folder, result)


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
