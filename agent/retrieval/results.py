"""Results of `agent retrieval score` and `compare`: `scores.json` and `comparison.json` of a retrieval folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from agent.evaluation.statistics import Interval
from agent.retrieval.significance import Stability
from agent.types import Count, Frozen, Share

# The queries to average over: those with a relevant code, or all. A query without one scores 0 except in Judged@k.
WhichQueries = Literal["with-positives", "all"]
# The source of relevance judgements: all labels, those of the benchmark only, or similarity to answers.
LabelSource = Literal["labels", "benchmark", "aroma"]


class RetrievalResult(Frozen):
    """A result computed from rankings and labels. `out_of_date` is set when either has changed since."""

    benchmark: str
    queries: Count
    level: Share
    seed: int
    resamples: Count
    notes: tuple[str, ...] = ()
    out_of_date: bool = False


class MetricValue(Frozen):
    """A metric's mean over queries, with a bootstrap confidence interval.

    The interval is None if all queries have the same value (`ClusterBootstrap.percentile_interval`).
    """

    mean: float
    interval: Interval | None


class SearcherScores(Frozen):
    """The scores of one searcher's ranking.

    `values` is by metric name. `found` counts the queries with a relevant code in the ranking. `median_frank` is the
    median of their FRanks (the expected rank of the first relevant code), None without such queries.
    `without_ranking` counts queries without results, which score 0.
    """

    searcher: str
    values: Mapping[str, MetricValue]
    found: Count
    median_frank: float | None
    without_ranking: Count = 0


class RetrievalScores(RetrievalResult):
    """The scores of all searchers on a benchmark.

    `scored` is the number of scored queries out of `queries`, and `without_positives` the number of queries without a
    relevant code. `relevant` and `judged` count pairs of a scored query and a code. `by_sort_order` lists the metrics
    computed by ir-measures, which breaks ties by sorting instead of taking the expectation. `missing_judgements` counts
    pairs of the pool that the annotator has not judged. `stability` is only present if requested.
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
    """Two searchers compared by one metric on the same queries. `difference` is the first mean minus the second.

    `interval` is a bootstrap interval of the difference. `better`, `worse` and `equal` count queries from the first
    searcher's point of view. p-values are two-sided. Adjusted p-values are Holm-corrected over the comparisons of the
    metric. The interval and the bootstrap p-values are None if the difference is the same for all queries.
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
    """Paired tests between searchers. `against` is the baseline, None if all pairs are compared."""

    against: str | None
    comparisons: tuple[Comparison, ...]
