"""What searchers are worth on a benchmark: every metric with its interval, per query, and tests between searchers."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, repeat
from pathlib import Path
from statistics import fmean, median
from typing import Literal

from agent.datasets.benchmark import Grades
from agent.datasets.encoding import dumps
from agent.errors import UsageError
from agent.evaluation.statistics import DEFAULTS, LEVEL, BootstrapSettings, Interval, holm, numpy
from agent.retrieval.measures import DEFAULT, Metric, Ranked, first_rank, get
from agent.retrieval.significance import ROUNDING, TESTS, intervals, paired
from agent.retrieval.stability import Stability, stability
from agent.store.files import replacing
from agent.types import Count, Frozen, Share

Which = Literal["with-positives", "all"]
"""Which queries count: those with a relevant code, or all (0 in every metric but Judged@k where there is none)."""
Judge = Literal["labels", "benchmark", "aroma"]
"""Who says what is relevant: all labels there are, those of the benchmark alone, or similarity to answers."""
Progress = Callable[[str, int, int], None]
"""Takes the searcher whose ranking is read, how many of its queries are scored, and how many queries there are."""
Rankings = Iterable[tuple[str, Mapping[str, float]]]
"""Of one searcher: each query once, with the scores of the codes found, as `read_trec` yields them."""


class Value(Frozen):
    """A metric's mean over queries, and its interval by bootstrap over queries.

    The interval is None where resampling says nothing (`ClusterBootstrap.percentiles`).
    """

    mean: float
    interval: Interval | None


class SearcherScores(Frozen):
    """What one searcher's ranking is worth.

    `values` are by metric. `found` counts the queries for which a relevant code is found, `median_frank` is the median
    of their FRanks (the expected rank of the first relevant code), None where there are none. `without_ranking` counts
    queries for which nothing at all was found; they count, as 0.
    """

    searcher: str
    values: Mapping[str, Value]
    found: Count
    median_frank: float | None
    without_ranking: Count = 0


class RetrievalScores(Frozen):
    """What searchers are worth on a benchmark; `scores.json` of a retrieval folder.

    `scored` of the benchmark's `queries` count: all but the `without_positives` where `which` says so. `relevant` and
    `judged` count pairs of the queries that count. `by_sort_order` names the metrics that ir-measures computed, where
    equal scores stand in the order of its sorting instead of by expectation. `stability` is of each metric, where
    there are two searchers or more and queries with several relevant codes.
    """

    benchmark: str
    queries: Count
    codes: Count
    scored: Count
    without_positives: Count
    which: Which
    relevant: Count
    judged: Count
    metrics: tuple[str, ...]
    by_sort_order: tuple[str, ...]
    level: Share
    seed: int
    resamples: Count
    searchers: tuple[SearcherScores, ...]
    judge: Judge = "labels"
    notes: tuple[str, ...] = ()
    stability: tuple[Stability, ...] = ()


class Comparison(Frozen):
    """Two searchers by one metric, on the same queries: `difference` is that of the means, first less second.

    `interval` is of that difference, by bootstrap over queries. `better`, `worse` and `equal` count queries on which
    the first is so. p-values are two-sided, adjusted by Holm over the comparisons of the metric. Interval and
    bootstrap are None where resampling says nothing: the difference is the same for all queries.
    """

    metric: str
    first: str
    second: str
    difference: float
    interval: Interval | None
    better: Count
    worse: Count
    equal: Count
    bootstrap_p: Share | None
    bootstrap_adjusted: Share | None
    randomisation_p: Share
    randomisation_adjusted: Share


class Comparisons(Frozen):
    """Tests between searchers; `against` is the one that all others are compared with, None where all pairs are."""

    benchmark: str
    queries: Count
    against: str | None
    level: Share
    seed: int
    resamples: Count
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class Scored:
    """Scores, and the values of each query that they are the means of.

    `queries` are the ids of the queries that count, `relevant` how many codes are relevant to each. `values` are by
    searcher and metric, `franks` by searcher (None where no relevant code is found), in the order of `queries`.
    """

    scores: RetrievalScores
    queries: Sequence[str]
    relevant: Sequence[int]
    values: Mapping[str, Mapping[str, Sequence[float]]]
    franks: Mapping[str, Sequence[float | None]]


def score(
    benchmark: str,
    queries: Sequence[str],
    codes: int,
    grades: Mapping[str, Grades],
    rankings: Mapping[str, Rankings],
    *,
    metrics: Sequence[str] = DEFAULT,
    which: Which = "with-positives",
    settings: BootstrapSettings = DEFAULTS,
    progress: Progress = lambda *_: None,
) -> Scored:
    """Score rankings, by searcher, reading each query by query.

    `benchmark` is a name, `queries` are ids, `codes` is how many codes were searched. A query without grades has no
    relevant code.

    Raises:
        ConfigError: no such metric.
        InputError: a ranking is malformed.
        UsageError: no query counts.
        ExtraMissing: a library is not installed.
    """
    wanted = [*{metric.name: metric for metric in map(get, metrics)}.values()]
    relevant = {query: sum(grade > 0 for grade in grades.get(query, {}).values()) for query in queries}
    counted = {query: grades.get(query, {}) for query in queries if which == "all" or relevant[query]}
    if not counted:
        raise UsageError(f"{benchmark}: none of the {len(queries)} queries has a relevant code; nothing can be scored")
    values: dict[str, dict[str, list[float]]] = {}
    franks: dict[str, list[float | None]] = {}
    searchers = []
    for name, ranking in rankings.items():
        rows = {}
        for query, scored in ranking:
            if query in counted:
                rows[query] = _row(Ranked(scored, counted[query]), wanted)
                progress(name, len(rows), len(counted))
        of = [rows.get(query) or _row(Ranked({}, judged), wanted) for query, judged in counted.items()]
        franks[name] = [frank for frank, _ in of]
        values[name] = {metric.name: [row[i] for _, row in of] for i, metric in enumerate(wanted)}
        found = [frank for frank in franks[name] if frank is not None]
        table = numpy().array([row for _, row in of])
        means = zip(values[name].items(), intervals(list(counted), table, settings), strict=True)
        searchers.append(
            SearcherScores(
                searcher=name,
                values={metric: Value(mean=fmean(each), interval=interval) for (metric, each), interval in means},
                found=len(found),
                median_frank=median(found) if found else None,
                without_ranking=len(counted) - len(rows),
            )
        )
    amounts = [relevant[query] for query in counted]
    stable = (
        stability(metric.name, amounts, {name: values[name][metric.name] for name in values}) for metric in wanted
    )
    scores = RetrievalScores(
        benchmark=benchmark,
        queries=len(queries),
        codes=codes,
        scored=len(counted),
        without_positives=sum(not amount for amount in relevant.values()),
        which=which,
        relevant=sum(amounts),
        judged=sum(map(len, counted.values())),
        metrics=tuple(metric.name for metric in wanted),
        by_sort_order=tuple(metric.name for metric in wanted if metric.by_sort_order),
        level=LEVEL,
        seed=settings.seed,
        resamples=settings.resamples,
        searchers=tuple(searchers),
        stability=tuple(each for each in stable if each),
    )
    return Scored(scores, list(counted), amounts, values, franks)


def _row(ranked: Ranked, metrics: Sequence[Metric]) -> tuple[float | None, list[float]]:
    """Return a query's FRank, and its value in each metric."""
    return first_rank(ranked), [metric.of(ranked) for metric in metrics]


def compare(scored: Scored, *, against: str | None = None, settings: BootstrapSettings = TESTS) -> Comparisons:
    """Test the differences between searchers, in each metric that was scored: all pairs, or all `against` one.

    Raises:
        UsageError: there are not two searchers, or none has that name.
        ExtraMissing: NumPy is not installed.
    """
    names = list(scored.values)
    if len(names) < 2:
        raise UsageError(f"a comparison needs two searchers or more, and {len(names)} was scored")
    if against is not None and against not in names:
        raise UsageError(f"no searcher {against} was scored; there are {', '.join(names)}")
    pairs = [(name, against) for name in names if name != against] if against else list(combinations(names, 2))
    comparisons = [
        comparison for metric in scored.scores.metrics for comparison in _tests(scored, metric, pairs, settings)
    ]
    return Comparisons(
        benchmark=scored.scores.benchmark,
        queries=len(scored.queries),
        against=against,
        level=LEVEL,
        seed=settings.seed,
        resamples=settings.resamples,
        comparisons=tuple(comparisons),
    )


def _tests(
    scored: Scored, metric: str, pairs: Sequence[tuple[str, str]], settings: BootstrapSettings
) -> list[Comparison]:
    np = numpy()
    values = {name: np.array(found[metric]) for name, found in scored.values.items()}
    differences = np.array([values[first] - values[second] for first, second in pairs]).T
    differences[abs(differences) < ROUNDING] = 0
    tests = paired(scored.queries, differences, settings)
    bootstrap = iter(holm([test.bootstrap_p for test in tests if test.bootstrap_p is not None]))
    randomisation = holm([test.randomisation_p for test in tests])
    return [
        Comparison(
            metric=metric,
            first=first,
            second=second,
            difference=float(differences[:, i].mean()),
            interval=test.interval,
            better=int((differences[:, i] > 0).sum()),
            worse=int((differences[:, i] < 0).sum()),
            equal=int((differences[:, i] == 0).sum()),
            bootstrap_p=test.bootstrap_p,
            bootstrap_adjusted=None if test.bootstrap_p is None else next(bootstrap),
            randomisation_p=test.randomisation_p,
            randomisation_adjusted=randomisation[i],
        )
        for i, ((first, second), test) in enumerate(zip(pairs, tests, strict=True))
    ]


def write_queries(scored: Scored, *, as_csv: Path, as_json: Path) -> None:
    """Write the values of each query, a row per searcher and query: as CSV, and the same as JSON Lines.

    An FRank of none is empty in the one and null in the other.

    Raises:
        StorageError: a file cannot be written; what was there is as before.
    """
    with replacing(as_csv) as draft, draft.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow((*_COLUMNS, *scored.scores.metrics))
        table.writerows(row.values() for row in _rows(scored))
    with replacing(as_json) as draft, draft.open("wb") as lines:
        lines.writelines(dumps(row) + b"\n" for row in _rows(scored))


_COLUMNS = ("searcher", "query", "relevant", "FRank")


def _rows(scored: Scored) -> Iterator[dict[str, object]]:
    for searcher, values in scored.values.items():
        about = repeat(searcher), scored.queries, scored.relevant, scored.franks[searcher]
        for row in zip(*about, *values.values(), strict=False):
            yield dict(zip((*_COLUMNS, *values), row, strict=True))
