"""What searchers are worth on a benchmark: every metric with its interval, per query, and tests between searchers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agent.datasets.benchmark import Grades
from agent.evaluation.statistics import DEFAULTS, Settings
from agent.types import Count, Frozen, Share

Which = Literal["with-positives", "all"]
"""Which queries count: those with a relevant code, or all (0 in every metric but Judged@k where there is none)."""
Progress = Callable[[str, int, int], None]
"""Takes the searcher whose ranking is read, how many of its queries are scored, and how many queries there are."""
Rankings = Iterable[tuple[str, Mapping[str, float]]]
"""Of one searcher: each query once, with the scores of the codes found, as `read_trec` yields them."""


class Value(Frozen):
    """A metric's mean over queries, and its interval by bootstrap over queries.

    The interval is None where resampling says nothing (`ClusterBootstrap.percentiles`); the mean is where no query
    counts.
    """

    mean: float | None
    low: float | None = None
    high: float | None = None


class SearcherScores(Frozen):
    """What one searcher's ranking is worth.

    `values` are by metric. `found` counts the queries for which a relevant code is found, `median_frank` is the median
    of their FRanks (the expected rank of the first relevant code), None where there are none.
    `without_ranking` counts queries for which nothing was found (they count, as 0), `other_queries` those of the
    ranking that the benchmark does not have or that do not count.
    """

    searcher: str
    values: Mapping[str, Value]
    found: Count
    median_frank: float | None
    without_ranking: Count = 0
    other_queries: Count = 0


class RetrievalScores(Frozen):
    """What searchers are worth on a benchmark; `scores.json` of a retrieval folder.

    `scored` of the benchmark's `queries` count: all but the `without_positives` where `which` says so. `relevant` and
    `judged` count pairs of the queries that count. `by_sort_order` names the metrics that ir-measures computed, where
    equal scores stand in the order of its sorting instead of by expectation.
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


class Comparison(Frozen):
    """Two searchers by one metric, on the same queries: `difference` is that of the means, first less second.

    `low` and `high` are its interval by bootstrap over queries. `better`, `worse` and `equal` count queries, as the
    first searcher sees them. p-values are two-sided; the adjusted ones are by Holm over the comparisons of the metric.
    `exact`: the randomisation test went through all ways to exchange the two searchers' values.
    """

    metric: str
    first: str
    second: str
    difference: float
    low: float | None
    high: float | None
    better: Count
    worse: Count
    equal: Count
    bootstrap_p: Share
    bootstrap_adjusted: Share
    randomisation_p: Share
    randomisation_adjusted: Share
    exact: bool


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
    metrics: Sequence[str] = (),
    which: Which = "with-positives",
    settings: Settings = DEFAULTS,
    progress: Progress = lambda *_: None,
) -> Scored:
    """Score rankings, by searcher, reading each query by query.

    `benchmark` is a name, `queries` are ids, `codes` is how many codes were searched; no metrics stand for
    `agent.retrieval.measures.DEFAULT`.

    Raises:
        ConfigError: no such metric.
        InputError: a ranking is malformed, or none of its queries counts.
        UsageError: no query counts.
        ExtraMissing: a library is not installed.
    """
    raise NotImplementedError


def compare(scored: Scored, *, against: str | None = None, settings: Settings = DEFAULTS) -> Comparisons:
    """Test the differences between searchers, in each metric that was scored: all pairs, or all `against` one.

    Raises:
        UsageError: there are not two searchers, or none has that name.
        ExtraMissing: NumPy is not installed.
    """
    raise NotImplementedError


def write_csv(path: Path, scored: Scored) -> None:
    """Write the values of each query: a row per searcher and query, a column per metric; an FRank of none is empty.

    Raises:
        StorageError: it cannot be written; what was there is as before.
    """
    raise NotImplementedError


def write_json(path: Path, scored: Scored) -> None:
    """Write the values of each query as JSON Lines: what `write_csv` writes, an FRank of none is null.

    Raises:
        StorageError: as `write_csv`.
    """
    raise NotImplementedError
