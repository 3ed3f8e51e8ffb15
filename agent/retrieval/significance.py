"""Intervals over queries, paired tests between two searchers, and the stability of a metric. Imports NumPy on use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from statistics import fmean, pvariance, variance
from typing import TYPE_CHECKING, Any

from agent.evaluation.statistics import BootstrapSettings, ClusterBootstrap, Interval, import_numpy
from agent.types import Count, Frozen

if TYPE_CHECKING:
    import numpy as np

# How tests are resampled unless told otherwise: a p-value is then at least .0001.
TEST_SETTINGS = BootstrapSettings(resamples=10_000)
_MAX_SIGNS = 2**22
# Values this close are equal but for rounding.
ROUNDING = 1e-12


def bootstrap_intervals(
    queries: Sequence[str], values: np.ndarray[Any, Any], settings: BootstrapSettings
) -> list[Interval | None]:
    """Return percentile intervals of the means of the columns (queries × columns), by bootstrap over queries.

    None where resampling says nothing, as where all queries have one value.

    Raises:
        ExtraMissing: NumPy is not installed.
    """
    bootstrap = ClusterBootstrap(queries, settings)
    sums = bootstrap.resample_sums(list(values), values.shape[1])
    vary = import_numpy().ptp(values, axis=0) > ROUNDING
    columns = zip(vary, sums.T / len(queries), strict=True)
    return [bootstrap.percentile_interval(means) if varies else None for varies, means in columns]


@dataclass(frozen=True)
class PairedTest:
    """Of one column of differences: the interval of its mean, and two-sided p-values that the mean is 0.

    `interval` and `bootstrap_p` are None where resampling says nothing: all differences are equal.
    """

    interval: Interval | None
    bootstrap_p: float | None
    randomisation_p: float


def run_paired_tests(
    queries: Sequence[str], differences: np.ndarray[Any, Any], settings: BootstrapSettings
) -> list[PairedTest]:
    """Test each column of differences (queries × columns) by bootstrap and by randomisation.

    Bootstrap: Sakai, Evaluating evaluation metrics based on the bootstrap (SIGIR 2006): queries are drawn from the
    differences less their mean, and the studentised mean t = mean / (s / √n) of each draw is compared with the observed
    one. Randomisation: Smucker, Allan and Carterette, A comparison of statistical significance tests for information
    retrieval evaluation (CIKM 2007): the searchers' values of a query are exchanged at random, which turns its
    difference's sign. p is (1 + draws at least as extreme) / (1 + draws), so never 0 (Davison and Hinkley 1997, section
    4.2.5). Equal seeds draw alike.

    Raises:
        ExtraMissing: NumPy is not installed.
    """
    np = import_numpy()
    bootstrap = ClusterBootstrap(queries, settings)
    count, columns = differences.shape
    mean = differences.mean(axis=0)
    centred = differences - mean
    sums = bootstrap.resample_sums(list(np.hstack([centred, centred**2])), 2 * columns)
    means, squares = sums[:, :columns] / count, sums[:, columns:] / count
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = np.abs(means) / np.sqrt(np.maximum(squares - means**2, 0))
        observed = np.abs(mean) / np.sqrt((centred**2).mean(axis=0))
        extreme = (drawn >= observed * (1 - ROUNDING)).sum(axis=0)
    vary = np.ptp(differences, axis=0) > ROUNDING
    least = np.abs(differences.sum(axis=0)) - ROUNDING * np.abs(differences).sum(axis=0)
    exchanged = sum((np.abs(signs @ differences) >= least).sum(axis=0) for signs in _draw_signs(count, settings))
    draws = 1 + settings.resamples
    return [
        PairedTest(
            bootstrap.percentile_interval(means[:, i] + mean[i]) if vary[i] else None,
            float((1 + extreme[i]) / draws) if vary[i] else None,
            float((1 + exchanged[i]) / draws),
        )
        for i in range(columns)
    ]


def _draw_signs(count: int, settings: BootstrapSettings) -> Iterator[Any]:
    """Yield arrays whose rows are random patterns of signs, in all as many as settings say."""
    random = import_numpy().random.default_rng(settings.seed)
    rows = max(1, _MAX_SIGNS // count)
    for done in range(0, settings.resamples, rows):
        size = min(rows, settings.resamples - done), count
        yield 2.0 * random.integers(0, 2, size=size, dtype="int8") - 1


# v1's test sets are the queries with as many relevant codes; all search the same codes.
TEST_SETS = (2, 3, 4, 5)


class Stability(Frozen):
    """How reliable and stable a metric is over searchers and test sets, as CoSQA+ v1 asks (section 4.4, Table 8).

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


def compute_stability(metric: str, relevant: Sequence[int], values: Mapping[str, Sequence[float]]) -> Stability | None:
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
        alpha=compute_cronbach_alpha(list(means.values())),
        sample_variance=fmean(map(variance, means.values())),
        population_variance=fmean(map(pvariance, means.values())),
    )


def compute_cronbach_alpha(scores: Sequence[Sequence[float]]) -> float | None:
    """Return Cronbach's alpha of scores (models × test sets), models being the items and test sets the cases.

    alpha = k / (k − 1) · (1 − Σ of the models' variances / variance of the test sets' sums over models), for k models;
    sample and population variance give the same. Of v1's Table 8 it is .956, as v1 says. None where the sums are equal.
    Source: Cronbach, Coefficient alpha and the internal structure of tests, Psychometrika 16 (1951).
    """
    whole = variance([sum(case) for case in zip(*scores, strict=True)])
    return len(scores) / (len(scores) - 1) * (1 - sum(map(variance, scores)) / whole) if whole else None
