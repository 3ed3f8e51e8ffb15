"""Defines the results in a retrieval folder: `scores.json`, `comparison.json`, `blindness.json` and `audit.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from agent.evaluation.statistics import Interval
from agent.retrieval.significance import Stability
from agent.types import Count, Frozen, Share

# The queries to average over: only queries with a relevant snippet, or all queries. A query without a relevant snippet
# scores 0 in every metric except Judged@k.
WhichQueries = Literal["with-positives", "all"]
# The source of relevance judgements: all labels, only the benchmark's labels, or similarity to answers.
LabelSource = Literal["labels", "benchmark", "aroma"]


class RetrievalResult(Frozen):
    """A result computed from rankings and labels. `out_of_date` is set when rankings or labels change."""

    benchmark: str
    queries: Count
    level: Share
    seed: int
    resamples: Count
    notes: tuple[str, ...] = ()
    out_of_date: bool = False


class MetricValue(Frozen):
    """A metric's mean over queries, with a bootstrap confidence interval.

    The interval is None if all queries have the same value (see `ClusterBootstrap.percentile_interval`).
    """

    mean: float
    interval: Interval | None

    def __str__(self) -> str:
        interval = self.interval
        return f"{self.mean:.3f}" + (f" [{interval.low:.3f}, {interval.high:.3f}]" if interval else "")


class SearcherScores(Frozen):
    """The scores of one searcher's ranking.

    `values` maps metric names to values. `found` counts the queries for which the ranking contains a relevant snippet.
    `median_frank` is the median FRank of these queries, or None if there are none. FRank is the expected rank of the
    first relevant snippet. `without_ranking` counts queries without results. These queries score 0.
    """

    searcher: str
    values: Mapping[str, MetricValue]
    found: Count
    median_frank: float | None
    without_ranking: Count = 0


class RetrievalScores(RetrievalResult):
    """The scores of all searchers on a benchmark.

    `scored` is the number of queries that were scored. `without_positives` is the number of queries without a relevant
    snippet. `judged` counts the judged pairs (each a scored query and a snippet), and `relevant` counts the relevant
    pairs among them. `by_sort_order` lists the metrics computed by ir-measures, which breaks ties by sorting instead of
    computing an expected value. `missing_judgements` counts pairs in the pool that the annotator has not judged.
    `stability` is present only if requested.
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


class SearcherComparison(Frozen):
    """Two searchers compared by one metric on the same queries.

    `difference` is the first searcher's mean minus the second searcher's mean. `interval` is a bootstrap interval for
    the difference. `better`, `worse` and `equal` count the queries for which the first searcher is better than, worse
    than or equal to the second searcher. All p-values are two-sided. Adjusted p-values are Holm-corrected over all
    comparisons by the same metric. The interval and the bootstrap p-values are None if the difference is the same for
    all queries.
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
    """Paired tests between searchers. `against` is the baseline, or None if all pairs of searchers are compared."""

    against: str | None
    comparisons: tuple[SearcherComparison, ...]


class CorrectedMean(MetricValue):
    """A mean over all queries, corrected by reviews. `predicted` is the mean with the annotator's labels."""

    predicted: float


class ReviewedSearcher(Frozen):
    """Corrected scores of a searcher by metric. `differences` to the first searcher is None for the first searcher."""

    searcher: str
    values: Mapping[str, CorrectedMean]
    differences: Mapping[str, CorrectedMean] | None


class ReviewedScores(RetrievalResult):
    """The scores of searchers, corrected by reviews of `reviewed` randomly drawn queries.

    `pairs` is the number of their pairs in the pool, and `undecided` the number of pairs without a majority label.
    """

    reviewed: Count
    pairs: Count
    undecided: Count
    metrics: tuple[str, ...]
    searchers: tuple[ReviewedSearcher, ...]


class BlindnessFigures(Frozen):
    """How a searcher ranks right code and mutants of it, over a set of contrasts.

    `accuracy` is the share of contrasts whose right code scores above the mutant. A tie counts as one half.
    `wrong_query_accuracy` is the same share under queries of other functions. `gap` is `accuracy` minus
    max(.5, `wrong_query_accuracy`). `gap_difference` is `gap` minus the gap of the first searcher, on the same
    contrasts and wrong queries. It is None for the first searcher.
    """

    contrasts: Count
    functions: Count
    accuracy: MetricValue
    wrong_query_accuracy: MetricValue
    gap: MetricValue
    gap_difference: MetricValue | None = None


class SearcherBlindness(Frozen):
    """The blindness of one searcher.

    `ties` counts contrasts that tie under their own query. `truncated_ties` counts those whose snippets are equal up
    to the model's limit. It is None if the searcher does not report where it truncates. `groups` has the figures of
    each kind of change, and of all contrasts except mutants that only raise exceptions (`all except crashes`).
    """

    searcher: str
    ties: Count
    truncated_ties: Count | None
    total: BlindnessFigures
    groups: Mapping[str, BlindnessFigures]


class Blindness(RetrievalResult):
    """Whether searchers prefer right code to mutants of it, and whether that depends on the query.

    `mutants` is the name of the file. `equivalent` counts mutants that were excluded because they equal right code of
    their query.
    """

    mutants: str
    equivalent: Count
    searchers: tuple[SearcherBlindness, ...]


class AuditFact(Frozen):
    """How often a fault occurs in a benchmark, the number of items that could have it if that is known, and examples.

    Texts in examples are escaped, on one line, and cut.
    """

    count: Count
    of: Count | None
    examples: tuple[Mapping[str, str], ...] = ()


class Ceiling(Frozen):
    """The expected mean of a metric for the best searcher that sees only texts, over queries with a relevant snippet.

    Equal queries have the same ranking, and copies of a snippet are in random order. `below` of the `of` queries have
    an expected value below 1. RR is a lower bound if equal queries have more than six different relevant texts.
    """

    metric: str
    value: Share
    below: Count
    of: Count


class ScoreShift(Frozen):
    """How a searcher's mean changes if all equivalents without a grade get the grade of the snippet that they equal.

    The interval of `difference` is clustered by queries that share groups of equivalents.
    """

    searcher: str
    metric: str
    before: float
    difference: MetricValue


class Audit(RetrievalResult):
    """Facts about a benchmark, by kind. `snippets` counts those in the files, including copies."""

    snippets: Count
    judgements: Count
    facts: Mapping[str, AuditFact]
    ceilings: tuple[Ceiling, ...]
    shifts: tuple[ScoreShift, ...] = ()
