"""Computes bootstrap intervals, paired tests between searchers, and the stability of metrics.

NumPy is imported only when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from statistics import fmean, pvariance, variance
from typing import Any

from agent.evaluation.lazy_numpy import np
from agent.evaluation.statistics import BootstrapSettings, ClusterBootstrap, Interval
from agent.types import Count, Frozen

# Default settings for paired tests. With this number of resamples, the smallest possible p-value is .0001.
TEST_SETTINGS = BootstrapSettings(resamples=10_000)
_MAX_SIGNS = 2**22
# Values that differ by less are considered equal.
ROUNDING = 1e-12


def bootstrap_intervals(
    queries: Sequence[str], values: np.ndarray[Any, Any], settings: BootstrapSettings
) -> list[Interval | None]:
    """Return percentile bootstrap intervals for the column means of `values` (queries × columns).

    An interval is None if resampling is not informative, for example if all queries have the same value.

    Raises:
        ExtraMissing: NumPy is not installed.
    """
    bootstrap = ClusterBootstrap(queries, settings)
    sums = bootstrap.resample_sums(list(values), values.shape[1])
    vary = np.ptp(values, axis=0) > ROUNDING
    columns = zip(vary, sums.T / len(queries), strict=True)
    return [bootstrap.percentile_interval(means) if varies else None for varies, means in columns]


@dataclass(frozen=True)
class PairedTest:
    """The confidence interval for a mean difference, and two-sided p-values for the null hypothesis that the mean is 0.

    `interval` and `bootstrap_p` are None if all differences are equal.
    """

    interval: Interval | None
    bootstrap_p: float | None
    randomisation_p: float


def run_paired_tests(
    queries: Sequence[str], differences: np.ndarray[Any, Any], settings: BootstrapSettings
) -> list[PairedTest]:
    """Run a bootstrap test and a randomisation test on each column of `differences` (queries × columns).

    The bootstrap test follows Sakai, Evaluating evaluation metrics based on the bootstrap (SIGIR 2006). It resamples
    the differences minus their mean, and compares the studentised mean t of each resample with the observed t. For n
    queries, t = mean / (s / √n), where s is the standard deviation. The randomisation test follows Smucker, Allan and
    Carterette, A comparison of statistical significance tests for information retrieval evaluation (CIKM 2007). It
    swaps the values of the two searchers for randomly chosen queries, which flips the signs of the differences. If E of
    B resamples are at least as extreme as the observed data, the p-value is (1 + E) / (1 + B). A p-value is therefore
    never 0 (Davison and Hinkley 1997, section 4.2.5). The results are deterministic for a given seed.

    Raises:
        ExtraMissing: NumPy is not installed.
    """
    bootstrap = ClusterBootstrap(queries, settings)
    count, columns = differences.shape
    mean = differences.mean(axis=0)
    centred = differences - mean
    sums = bootstrap.resample_sums(list(np.hstack([centred, centred**2])), 2 * columns)
    means, squares = sums[:, :columns] / count, sums[:, columns:] / count
    with np.errstate(divide="ignore", invalid="ignore"):
        resampled_t = np.abs(means) / np.sqrt(np.maximum(squares - means**2, 0))
        observed_t = np.abs(mean) / np.sqrt((centred**2).mean(axis=0))
        extreme_draws = (resampled_t >= observed_t * (1 - ROUNDING)).sum(axis=0)
    vary = np.ptp(differences, axis=0) > ROUNDING
    threshold = np.abs(differences.sum(axis=0)) - ROUNDING * np.abs(differences).sum(axis=0)
    extreme_swaps = sum(
        (np.abs(signs @ differences) >= threshold).sum(axis=0) for signs in _draw_signs(count, settings)
    )
    draws = 1 + settings.resamples
    return [
        PairedTest(
            bootstrap.percentile_interval(means[:, i] + mean[i]) if vary[i] else None,
            float((1 + extreme_draws[i]) / draws) if vary[i] else None,
            float((1 + extreme_swaps[i]) / draws),
        )
        for i in range(columns)
    ]


def _draw_signs(count: int, settings: BootstrapSettings) -> Iterator[Any]:
    """Yield batches of random sign vectors (rows), `settings.resamples` rows in total."""
    random = np.random.default_rng(settings.seed)
    rows = max(1, _MAX_SIGNS // count)
    for start in range(0, settings.resamples, rows):
        size = min(rows, settings.resamples - start), count
        yield 2.0 * random.integers(0, 2, size=size, dtype="int8") - 1


# In version 1 of the CoSQA+ paper, test set n contains the queries with n relevant snippets. All test sets share one
# corpus.
TEST_SETS = (2, 3, 4, 5)


class Stability(Frozen):
    """The reliability and stability of a metric across searchers and test sets.

    Source: version 1 of the CoSQA+ paper (section 4.4, Table 8). A test set contains the queries with a given number of
    relevant snippets. `queries` maps this number to the number of queries in the test set. `means` maps each searcher
    to its means on the test sets, in the order of `queries`. `alpha` is Cronbach's alpha. Each variance is computed
    over a searcher's means and then averaged over searchers, in the same way as in the paper. For n test sets, the
    divisor is n − 1 (`sample_variance`) or n (`population_variance`). For the data in Table 8, the variances are .00078
    and .00059. The paper reports .0004, which matches neither.
    """

    metric: str
    queries: Mapping[int, Count]
    means: Mapping[str, tuple[float, ...]]
    alpha: float | None
    sample_variance: float
    population_variance: float


def compute_stability(metric: str, relevant: Sequence[int], values: Mapping[str, Sequence[float]]) -> Stability | None:
    """Compute the stability of a metric.

    `relevant` contains the number of relevant snippets for each query. `values` maps each searcher to the values of the
    metric for the same queries, in the same order. Returns None if there are fewer than two searchers, or fewer than
    two test sets with queries.
    """
    queries = {count: relevant.count(count) for count in TEST_SETS if count in relevant}
    if len(values) < 2 or len(queries) < 2:
        return None
    means = {
        searcher: tuple(fmean(compress(query_values, (count == size for count in relevant))) for size in queries)
        for searcher, query_values in values.items()
    }
    return Stability(
        metric=metric,
        queries=queries,
        means=means,
        alpha=compute_cronbach_alpha(list(means.values())),
        sample_variance=fmean(map(variance, means.values())),
        population_variance=fmean(map(pvariance, means.values())),
    )


def compute_cronbach_alpha(scores: Sequence[Sequence[float]]) -> float | None:
    """Compute Cronbach's alpha for scores (models × test sets), with models as items and test sets as cases.

    For k models, alpha = k / (k − 1) · (1 − Σ V_i / V). V_i is the variance of the scores of model i. V is the variance
    of the total scores of the test sets, where a total is a sum over models. Sample and population variances yield the
    same alpha. For the data in Table 8 of version 1 of the CoSQA+ paper, alpha is .956, which matches the value
    reported there. Returns None if all totals are equal. Source: Cronbach, Coefficient alpha and the internal structure
    of tests, Psychometrika 16 (1951).
    """
    total = variance([sum(case) for case in zip(*scores, strict=True)])
    return len(scores) / (len(scores) - 1) * (1 - sum(map(variance, scores)) / total) if total else None
