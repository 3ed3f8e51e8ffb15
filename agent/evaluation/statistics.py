"""Confidence intervals, the cluster bootstrap, paired tests and agreement coefficients.

NumPy and SciPy (from the `stats` extra) are imported on first use.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from agent.errors import needs_extra
from agent.evaluation.lazy_numpy import np

# confidence level of all intervals
LEVEL = 0.95
# minimum number of discordant pairs for which `mcnemar_exact` can return p < .05
MIN_DISCORDANT = 6


@dataclass(frozen=True)
class Interval:
    """A closed interval."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:.3f} to {self.high:.3f}"


@dataclass(frozen=True)
class BootstrapSettings:
    """The seed and the number of resamples for a bootstrap."""

    seed: int = 0
    resamples: int = 2000


DEFAULTS = BootstrapSettings()


def wilson_interval(successes: int, total: int) -> Interval:
    """Compute the Wilson score interval for a binomial proportion. The interval is 0 to 1 if `total` is 0.

    Source: Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927).

    Raises:
        ValueError: `successes` is negative or exceeds `total`.
    """
    if not 0 <= successes <= total:
        raise ValueError(f"the number of successes must be between 0 and {total}, not {successes}")
    if total == 0:
        return Interval(0.0, 1.0)
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    half = z * math.sqrt(successes * (total - successes) / total + z**2 / 4)
    low, high = ((successes + z**2 / 2 + side * half) / (total + z**2) for side in (-1, 1))
    # rounding errors could otherwise exclude a proportion of 0 or 1
    return Interval(low if successes else 0.0, high if successes < total else 1.0)


def compute_p_value(size: int, reviewed: int, wrong: int, errors: int) -> float:
    """Compute the probability of at most `wrong` errors in a sample if `size` pairs contain `errors` errors.

    The sample is a simple random sample of `reviewed` pairs, drawn without replacement.

    Raises:
        ExtraMissing: SciPy is not installed.
    """
    with needs_extra("stats"):
        from scipy.stats import hypergeom
    return float(hypergeom.cdf(wrong, size, errors, reviewed))


def bound_errors(size: int, reviewed: int, wrong: int, alpha: float) -> int:
    """Compute the exact upper confidence bound of the number of errors among `size` pairs, at level `1 - alpha`.

    The bound is the largest number of errors whose p-value (see `compute_p_value`) is at least `alpha`. For large
    `size`, the bound divided by `size` approaches the bound of Clopper and Pearson, Biometrika 26 (1934).
    Source: Buonaccorsi, A note on confidence intervals for proportions in finite populations, Am. Stat. 41 (1987).

    Raises:
        ValueError: the counts are negative or contradict each other.
        ExtraMissing: SciPy is not installed.
    """
    if not 0 <= wrong <= reviewed <= size:
        raise ValueError(f"counts must satisfy 0 <= {wrong} (wrong) <= {reviewed} (reviewed) <= {size} (all)")
    candidates = range(wrong + 1, size - reviewed + wrong + 1)
    rejected = bisect_left(candidates, True, key=lambda k: compute_p_value(size, reviewed, wrong, k) < alpha)
    return wrong + rejected


def divide(numerator: Any, denominator: Any) -> Any:
    """Divide numbers or arrays element by element. Division by zero returns NaN."""
    arrays = np.asarray(numerator, dtype=float), np.asarray(denominator, dtype=float)
    numerator, denominator = np.broadcast_arrays(*arrays)
    return np.divide(numerator, denominator, out=np.full(denominator.shape, np.nan), where=denominator != 0)


class ClusterBootstrap:
    """A cluster bootstrap, which resamples whole clusters instead of individual items.

    The items are pairs, and each cluster contains the pairs with the same query, which are not independent. `clusters`
    contains the cluster name of each item. Results depend on the seed but not on the order of items.
    Source: Davison and Hinkley, Bootstrap methods and their application (1997), section 3.8.
    Source of the percentile interval: Efron and Tibshirani, An introduction to the bootstrap (1993), section 13.3.
    """

    def __init__(self, clusters: Sequence[str], settings: BootstrapSettings = DEFAULTS) -> None:
        numbers = {name: number for number, name in enumerate(sorted(set(clusters)))}
        self.clusters = len(numbers)
        self.settings = settings
        self._cluster_of = [numbers[name] for name in clusters]

    def resample_sums(self, rows: Sequence[Sequence[float]], columns: int) -> Any:
        """Compute the column sums for each resample. Return an array with one row per resample.

        `rows` has one row per item and `columns` columns. Statistics that are functions of sums, such as proportions
        and Cohen's kappa, can be computed from the array.

        Raises:
            ValueError: the number of rows differs from the number of items.
            ExtraMissing: NumPy is not installed.
        """
        if len(rows) != len(self._cluster_of):
            raise ValueError(f"got {len(rows)} rows for {len(self._cluster_of)} items")
        if not rows:
            return np.zeros((self.settings.resamples, columns))
        items = np.asarray(rows)
        cluster_sums = np.zeros((self.clusters, columns), dtype=items.dtype)
        np.add.at(cluster_sums, self._cluster_of, items)
        random = np.random.default_rng(self.settings.seed)
        draws = (random.integers(0, self.clusters, self.clusters) for _ in range(self.settings.resamples))
        return np.stack([np.bincount(draw, minlength=self.clusters) @ cluster_sums for draw in draws])

    def percentile_interval(self, values: Any) -> Interval | None:
        """Compute the percentile interval of a statistic from its bootstrap replicates.

        NaN, which marks resamples with an undefined statistic, is ignored. The interval is None if there are fewer than
        two clusters, if all values are equal, or if the proportion of NaN exceeds `1 - LEVEL`.
        """
        defined = values[~np.isnan(values)]
        too_few = len(values) - len(defined) > (1 - LEVEL) * len(values)
        if self.clusters < 2 or too_few or not len(defined) or defined.min() == defined.max():
            return None
        tail = (1 - LEVEL) / 2
        low, high = np.quantile(defined, [tail, 1 - tail])
        return Interval(float(low), float(high))


def mcnemar_exact(only_first: int, only_second: int) -> float:
    """Compute the two-sided p-value of McNemar's exact test. If there are no discordant pairs, the p-value is 1.

    `only_first` is the number of pairs that only the first annotator labels correctly. `only_second` is the number of
    pairs that only the second annotator labels correctly.
    Source: McNemar, Psychometrika 12 (1947). The exact version uses the binomial distribution with p = 1/2.

    Raises:
        ValueError: a count is negative.
        ExtraMissing: SciPy is not installed.
    """
    if min(only_first, only_second) < 0:
        raise ValueError(f"counts cannot be negative: {only_first}, {only_second}")
    with needs_extra("stats"):
        from scipy.stats import binomtest
    discordant = only_first + only_second
    return float(binomtest(only_first, discordant).pvalue) if discordant else 1.0


def adjust_holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values with Holm's step-down method. The result is in the original order.

    Source: Holm, A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6 (1979).

    Raises:
        ValueError: a p-value is not between 0 and 1.
    """
    if any(not 0 <= p <= 1 for p in p_values):
        raise ValueError("p-values must be between 0 and 1")
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def alpha_terms(labels: Sequence[int | None]) -> tuple[float, int, int]:
    """Return the terms that an item (the labels of one pair) adds to the sums in `krippendorff_alpha`.

    The terms are the disagreement, the number of zeros and the number of ones. The disagreement is the number of
    ordered pairs of different labels, divided by the number of labels minus one. If an item has fewer than two labels,
    all terms are 0.
    """
    zeros, ones = labels.count(0), labels.count(1)
    return (2 * zeros * ones / (zeros + ones - 1), zeros, ones) if zeros + ones > 1 else (0.0, 0, 0)


def krippendorff_alpha(items: Iterable[Sequence[int | None]]) -> float | None:
    """Compute Krippendorff's nominal alpha. Each item contains the labels of one pair (0, 1, or None if missing).

    Alpha is None if no item has at least two labels, or if all pairable labels are equal.
    Source: Krippendorff, Computing Krippendorff's alpha-reliability (2011), section C.
    """
    observed, zeros, ones = 0.0, 0, 0
    for item, count in Counter(map(tuple, items)).items():
        item_observed, item_zeros, item_ones = alpha_terms(item)
        observed += count * item_observed
        zeros += count * item_zeros
        ones += count * item_ones
    expected = 2 * zeros * ones
    return 1 - (zeros + ones - 1) * observed / expected if expected else None
