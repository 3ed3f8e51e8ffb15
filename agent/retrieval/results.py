"""What `agent retrieval score` and `compare` compute: `scores.json` and `comparison.json` of a retrieval folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from agent.evaluation.statistics import Interval
from agent.retrieval.significance import Stability
from agent.types import Count, Frozen, Share

# Which queries count: those with a relevant code, or all (0 in every metric but Judged@k where there is none).
WhichQueries = Literal["with-positives", "all"]
# Who says what is relevant: all labels there are, those of the benchmark alone, or similarity to answers.
LabelSource = Literal["labels", "benchmark", "aroma"]


class RetrievalResult(Frozen):
    """A document computed from rankings and labels. `out_of_date`: one of them has changed since."""

    benchmark: str
    queries: Count
    level: Share
    seed: int
    resamples: Count
    notes: tuple[str, ...] = ()
    out_of_date: bool = False


class MetricValue(Frozen):
    """A metric's mean over queries, and its interval by bootstrap over queries.

    The interval is None where resampling says nothing (`ClusterBootstrap.percentiles`).
    """

    mean: float
    interval: Interval | None


class SearcherScores(Frozen):
    """The scores of one searcher's ranking.

    `values` are by metric. `found` counts the queries for which a relevant code is found. `median_frank` is the median
    of their FRanks (the expected rank of the first relevant code), None where there are none. `without_ranking` counts
    queries for which nothing at all was found; these count as 0.
    """

    searcher: str
    values: Mapping[str, MetricValue]
    found: Count
    median_frank: float | None
    without_ranking: Count = 0


class RetrievalScores(RetrievalResult):
    """The scores of all searchers on a benchmark.

    `scored` of the benchmark's `queries` count: all but the `without_positives` where `which` says so. `relevant` and
    `judged` count pairs of the queries that count. `by_sort_order` names the metrics that ir-measures computed, which
    breaks ties by sorting instead of taking the expectation. `missing_judgements` counts pairs of the pool that the
    annotator has not judged. `stability` is None, and not in the file, unless asked for.
    """

    codes: Count
    scored: Count
    without_positives: Count
    which: WhichQueries
    relevant: Count
    judged: Count
    metrics: tuple[str, ...]
    by_sort_order: tuple[str, ...]
    searchers: tuple[SearcherScores, ...]
    judge: LabelSource = "labels"
    missing_judgements: Count = 0
    stability: tuple[Stability, ...] | None = Field(default=None, exclude_if=lambda value: value is None)


class Comparison(Frozen):
    """Two searchers by one metric, on the same queries. `difference` is that of the means, first less second.

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


class Comparisons(RetrievalResult):
    """Tests between searchers. `against` is the one that all others are compared with, None for all pairs."""

    against: str | None
    comparisons: tuple[Comparison, ...]
