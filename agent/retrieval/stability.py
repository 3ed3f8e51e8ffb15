"""How reliable and stable a metric is across models and test sets, as CoSQA+ v1 asks (section 4.4, Table 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from statistics import fmean, pvariance, variance

from agent.types import Count, Frozen

# v1's test sets are the queries with as many relevant codes; all search the same codes.
TEST_SETS = (2, 3, 4, 5)


class Stability(Frozen):
    """A metric's means of each searcher on each test set, and what they say of the metric.

    `queries` counts those of a test set, by its number of relevant codes; `means` are in its order. `alpha` is
    Cronbach's. The variances are those of a searcher's means over the test sets, averaged over the searchers, as v1
    describes it: with divisor n − 1 (sample) and with n (population). Of v1's Table 8 they are .00078 and .00059; v1
    prints .0004, which is neither.
    """

    metric: str
    queries: Mapping[int, Count]
    means: Mapping[str, tuple[float, ...]]
    alpha: float | None
    sample_variance: float
    population_variance: float


def stability(metric: str, relevant: Sequence[int], values: Mapping[str, Sequence[float]]) -> Stability | None:
    """Return a metric's stability from the values of each query, by searcher; `relevant` counts each query's codes.

    None where there are fewer than two searchers, or fewer than two of the test sets have queries.
    """
    queries = {count: relevant.count(count) for count in TEST_SETS if count in relevant}
    if len(values) < 2 or len(queries) < 2:
        return None
    means = {
        searcher: tuple(fmean(compress(of_queries, (count == size for count in relevant))) for size in queries)
        for searcher, of_queries in values.items()
    }
    return Stability(
        metric=metric,
        queries=queries,
        means=means,
        alpha=cronbach_alpha(list(means.values())),
        sample_variance=fmean(map(variance, means.values())),
        population_variance=fmean(map(pvariance, means.values())),
    )


def cronbach_alpha(scores: Sequence[Sequence[float]]) -> float | None:
    """Return Cronbach's alpha of scores (models × test sets), models being the items and test sets the cases.

    alpha = k / (k − 1) · (1 − Σ of the models' variances / variance of the test sets' sums over models), for k models;
    sample and population variance give the same. Of v1's Table 8 it is .956, as v1 says. None where the sums are equal.
    Source: Cronbach, Coefficient alpha and the internal structure of tests, Psychometrika 16 (1951).
    """
    whole = variance([sum(case) for case in zip(*scores, strict=True)])
    return len(scores) / (len(scores) - 1) * (1 - sum(map(variance, scores)) / whole) if whole else None
