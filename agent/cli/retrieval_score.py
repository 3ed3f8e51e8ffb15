"""`agent retrieval score` and `compare`: what rankings are worth, as tables or JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from rich.cells import cell_len
from rich.text import Text

from agent.cli.progress import Steps
from agent.cli.running import explain_stop
from agent.cli.text import Console, add_row, headed, one_line, print_json, say
from agent.datasets.encoding import dumps
from agent.errors import RunStopped, UsageError
from agent.evaluation.statistics import BootstrapSettings, interval_text, number_text
from agent.retrieval import scores
from agent.retrieval.folder import COMPARISON, SCORES, SCORES_CSV, SCORES_JSONL, RetrievalFolder, held
from agent.retrieval.judging import Labels, labels
from agent.retrieval.measures import DEFAULT, get
from agent.retrieval.rankings import read_trec
from agent.retrieval.scores import Comparisons, Judge, RetrievalScores, Scored, Which
from agent.retrieval.search import take
from agent.retrieval.significance import TESTS
from agent.store.files import replacing
from agent.types import Frozen
from agent.views.searchers import FOUND, STABILITY, how_compared, p_value, rank, remarks

T = TypeVar("T")
_COLUMN = 16
"""How wide an interval is, with a blank on each side."""
_SIZES = (10, 16, 7, 7, 11)
_FIGURES = sum(_SIZES) + len(_SIZES)


def score(
    path: Path,
    rankings: Sequence[str],
    metrics: Sequence[str],
    *,
    judge: Judge,
    which: Which | None,
    seed: int,
    resamples: int,
    as_json: bool,
) -> None:
    """Take rankings in, score all that the folder has, keep the scores and print them.

    Raises:
        UsageError: no such folder or metric, a ranking is malformed, no query counts.
        StorageError: scores cannot be written.
    """
    taken = [_named(each) for each in rankings]
    for metric in metrics:
        get(metric)  # known to be one before earlier scores are dropped
    settings = BootstrapSettings(seed=seed, resamples=resamples)

    def work(folder: RetrievalFolder, steps: Steps) -> RetrievalScores:
        benchmark = folder.benchmark() if taken else None
        for name, file in taken:
            if benchmark is not None:
                take(folder, benchmark, name, file)
        found = scored(folder, labels(folder, judge, steps), metrics or DEFAULT, which, settings, steps)
        (folder.path / COMPARISON).unlink(missing_ok=True)
        scores.write_queries(found, as_csv=folder.path / SCORES_CSV, as_json=folder.path / SCORES_JSONL)
        _write(folder.path / SCORES, found.scores)
        return found.scores

    found = _held(path, work)
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    _print_scores(found)
    say(Console(), f"kept in {path / SCORES}, per query in {SCORES_CSV} and {SCORES_JSONL}")


def compare(path: Path, metrics: Sequence[str], against: str | None, *, as_json: bool) -> None:
    """Test differences between the searchers of a folder, keep the result and print it.

    Raises:
        UsageError: no such folder, metric or searcher, or there are not two searchers.
        StorageError: the result cannot be written.
    """

    def work(folder: RetrievalFolder, steps: Steps) -> Comparisons:
        before = folder.document(SCORES, RetrievalScores)
        wanted = metrics or (before.metrics if before else DEFAULT)
        by, which = labels(folder, before.judge if before else "labels", steps), before.which if before else None
        seed = before.seed if before else 0
        # the intervals of the means are not needed here
        found = scored(folder, by, wanted, which, BootstrapSettings(seed=seed, resamples=1), steps)
        result = scores.compare(
            found, against=against, settings=BootstrapSettings(seed=seed, resamples=TESTS.resamples)
        )
        _write(folder.path / COMPARISON, result)
        return result

    found = _held(path, work)
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    _print_comparisons(found)
    say(Console(), f"kept in {path / COMPARISON}")


def scored(
    folder: RetrievalFolder,
    labels: Labels,
    metrics: Sequence[str],
    which: Which | None,
    settings: BootstrapSettings,
    steps: scores.Progress,
) -> Scored:
    """Score the rankings of a folder by labels; these say which queries count where `which` does not.

    Raises:
        UsageError: there is no ranking, no such metric, or no query counts; a file of the folder is damaged.
    """
    if not folder.rankings:
        raise UsageError(f"{folder.path}: holds no ranking that is whole; go on with: agent retrieval run")
    found = scores.score(
        folder.about["name"],
        labels.queries,
        folder.identity["benchmark"]["codes"],
        labels.grades,
        {name: read_trec(folder.ranking(name)) for name in folder.rankings},
        metrics=metrics,
        which=which or ("all" if labels.judge == "aroma" else "with-positives"),
        settings=settings,
        progress=lambda name, done, total: steps(f"scoring {name}", done, total),
    )
    depth = folder.identity["depth"]
    beyond = [metric for metric in found.scores.metrics if "@" in metric and float(metric.rpartition("@")[2]) > depth]
    cut = (f"{', '.join(beyond)}: only the best {depth:,} codes of each query were kept (--depth)",) if beyond else ()
    about = {"judge": labels.judge, "notes": (*labels.notes, *cut)}
    return replace(found, scores=found.scores.model_copy(update=about))


def _held(path: Path, work: Callable[[RetrievalFolder, Steps], T]) -> T:
    notes = Console(stderr=True)
    try:
        with held(path) as folder, Steps(notes) as steps:
            return work(folder, steps)
    except (KeyboardInterrupt, RunStopped) as error:
        explain_stop(notes, error, "")


def _named(ranking: str) -> tuple[str, Path]:
    name, divided, file = ranking.partition("=")
    if not (name and divided and file):
        raise UsageError(f"--ranking {ranking}: NAME=FILE expected, as in mine=results.trec")
    return name, Path(file)


def _write(path: Path, document: Frozen) -> None:
    with replacing(path) as draft:
        draft.write_bytes(dumps(document.model_dump(mode="json"), indent=True) + b"\n")


def _print_scores(found: RetrievalScores) -> None:
    """Print a row for each searcher and a column for each metric, in as many tables as fit side by side."""
    console = Console()
    columns = {
        metric: [
            f"{number_text(each.values[metric].mean)}\n{interval_text(each.values[metric].interval)}"
            for each in found.searchers
        ]
        for metric in found.metrics
    }
    columns[FOUND[0]] = [f"{each.found:,}" for each in found.searchers]
    columns[FOUND[1]] = [rank(each) for each in found.searchers]
    names = [one_line(each.searcher) for each in found.searchers]
    widest = min(max(map(cell_len, names)), console.width // 2)
    at_once = max(1, (console.width - widest) // _COLUMN)
    for start in range(0, len(columns), at_once):
        group = list(columns)[start : start + at_once]
        table = headed("", *group)
        table.columns[0].overflow, table.columns[0].width = "fold", widest
        for row, name in enumerate(names):
            table.add_row(Text(name), *(Text(columns[each][row]) for each in group))
        console.print(table)
        console.print()
    if found.stability:
        table = headed("", "Cronbach's alpha", "variance (n − 1)", "variance (n)")
        for each in found.stability:
            variances = f"{each.sample_variance:.5f}", f"{each.population_variance:.5f}"
            add_row(table, each.metric, number_text(each.alpha), *variances)
        console.print(table)
        say(console, f"{STABILITY}\n")
    for line in remarks(found):
        say(console, line)


def _print_comparisons(found: Comparisons) -> None:
    """Print a line for each comparison, its name on one of its own where they do not fit side by side."""
    console = Console()
    names = [one_line(f"{each.first} − {each.second}", limit=1000) for each in found.comparisons]
    widest = max(map(cell_len, names), default=0)
    apart = widest + _FIGURES > console.width
    heads = "difference", f"{found.level:.0%} interval", "p boot.", "p rand.", "queries"
    for metric, group in groupby(zip(found.comparisons, names, strict=True), key=lambda each: each[0].metric):
        if apart:
            say(console, metric, style="bold")
        say(console, _figures("" if apart else metric, 0 if apart else widest, *heads), style="bold")
        for each, name in group:
            tests = p_value(each.bootstrap_adjusted), p_value(each.randomisation_adjusted)
            queries = f"{each.better}:{each.worse}:{each.equal}"
            figures = f"{each.difference:+.3f}", interval_text(each.interval), *tests, queries
            if apart:
                say(console, name)
            say(console, _figures("" if apart else name, 0 if apart else widest, *figures))
        console.print()
    say(console, how_compared(found))


def _figures(name: str, width: int, *cells: str) -> str:
    padded = (f"{cell:>{size}}" for cell, size in zip(cells, _SIZES, strict=True))
    return " ".join([name + " " * (width - cell_len(name)), *padded])
