"""How reliable and stable a metric is across models and test sets, as CoSQA+ v1 asks (section 4.4, Table 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, pvariance, variance

from agent.types import Count, Frozen

TEST_SETS = (2, 3, 4, 5)
"""v1's test sets are the queries with as many relevant codes; all search the same codes."""


class Stability(Frozen):
    """A metric's means of each searcher on each test set, and what they say of the metric.

    `queries` counts those of a test set, by its number of relevant codes; `means` are in its order. The two variances
    are of a searcher's means over the test sets, averaged over the searchers: with divisor n − 1 and with n.
    """

    metric: str
    queries: Mapping[int, Count]
    means: Mapping[str, tuple[float, ...]]
    alpha: float | None
    sample_variance: float
    population_variance: float


def cronbach_alpha(scores: Sequence[Sequence[float]]) -> float | None:
    """Return Cronbach's alpha of scores (models × test sets), models being the items and test sets the cases.

    alpha = k / (k − 1) · (1 − Σ of the models' variances / variance of the test sets' sums over models), for k models.
    Sample and population variance give the same. None where it is undefined: fewer than two of either, or equal sums.
    v1's Table 8 gives .956, as v1 says.
    Source: Cronbach, Coefficient alpha and the internal structure of tests, Psychometrika 16 (1951); v1 cites Tavakol
    and Dennick 2011.

    Raises:
        ValueError: the models were not given the same number of test sets.
    """
    sums = [sum(case) for case in zip(*scores, strict=True)]
    if len(scores) < 2 or len(sums) < 2 or max(sums) == min(sums):
        return None
    models = len(scores)
    return float(models / (models - 1) * (1 - sum(map(variance, scores)) / variance(sums)))


def mean_variance(scores: Sequence[Sequence[float]], *, sample: bool) -> float:
    """Return the variance over test sets, averaged over models, as v1 describes it; divisor n − 1 (`sample`) or n.

    Of v1's Table 8 it is .00078 as sample variance and .00059 as population variance. v1 prints .0004, which is
    neither; the sum of the three population variances divided by 4, the number of test sets, would be .00044.

    Raises:
        StatisticsError: there is no model, or fewer than two test sets.
    """
    return fmean([variance(model) if sample else pvariance(model) for model in scores])


def stability(metric: str, relevant: Sequence[int], values: Mapping[str, Sequence[float]]) -> Stability | None:
    """Return a metric's stability from the values of each query, by searcher; `relevant` counts each query's codes.

    None where there are fewer than two searchers, or fewer than two of the test sets have queries.
    """
    queries = {count: relevant.count(count) for count in TEST_SETS if count in relevant}
    if len(values) < 2 or len(queries) < 2:
        return None
    means = {
        searcher: tuple(
            fmean(value for value, count in zip(found, relevant, strict=True) if count == size) for size in queries
        )
        for searcher, found in values.items()
    }
    table = list(means.values())
    return Stability(
        metric=metric,
        queries=queries,
        means=means,
        alpha=cronbach_alpha(table),
        sample_variance=mean_variance(table, sample=True),
        population_variance=mean_variance(table, sample=False),
    )
