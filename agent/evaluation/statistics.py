"""Intervals, resampling of clusters, paired tests, agreement. NumPy and SciPy (extra `stats`) are imported on use."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from types import ModuleType
from typing import Any

from agent.errors import ExtraMissing

BINS = 10
# the level of confidence of every interval
LEVEL = 0.95
# how many discordant pairs `mcnemar_exact` needs to come below .05, were all of them on one side
LEAST_DISCORDANT = 6


def import_numpy() -> ModuleType:
    """Return NumPy.

    Raises:
        ExtraMissing: it is not installed.
    """
    try:
        import numpy
    except ImportError as error:
        raise ExtraMissing("stats", error) from error
    return numpy


@dataclass(frozen=True)
class Interval:
    """From `low` to `high`, both included."""

    low: float
    high: float


def format_number(value: float | None) -> str:
    """Return a value with three decimals; a dash where it is undefined."""
    return "–" if value is None else f"{value:.3f}"


def format_interval(interval: Interval | None) -> str:
    """Return an interval with three decimals, as in `0.120 to 0.345`; a dash where there is none."""
    return "–" if interval is None else f"{interval.low:.3f} to {interval.high:.3f}"


@dataclass(frozen=True)
class BootstrapSettings:
    """How intervals over resamples are made."""

    seed: int = 0
    resamples: int = 2000


DEFAULTS = BootstrapSettings()


def wilson_interval(successes: int, total: int) -> Interval:
    """Return Wilson's score interval of a share of independent items; 0 to 1 (its limit) where there are none.

    Source: Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927).

    Raises:
        ValueError: more successes than items.
    """
    if not 0 <= successes <= total:
        raise ValueError(f"{successes} successes among {total} items")
    if total == 0:
        return Interval(0.0, 1.0)
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    half = z * math.sqrt(successes * (total - successes) / total + z**2 / 4)
    low, high = ((successes + z**2 / 2 + side * half) / (total + z**2) for side in (-1, 1))
    # at the ends rounding would leave the share itself out
    return Interval(low if successes else 0.0, high if successes < total else 1.0)


def ratio(above: Any, below: Any) -> Any:
    """Return a quotient of numbers or arrays, as an array, NaN where it is undefined (division by zero)."""
    np = import_numpy()
    above, below = np.broadcast_arrays(np.asarray(above, dtype=float), np.asarray(below, dtype=float))
    return np.divide(above, below, out=np.full(below.shape, np.nan), where=below != 0)


class ClusterBootstrap:
    """Draws as many clusters as there are, with replacement, as often as `settings` say; equal seeds draw alike.

    Pairs of one query are such a cluster: they stand or fall together. `clusters` names the cluster of each item;
    neither their order nor that of the items matters.
    Source: Davison and Hinkley, Bootstrap methods and their application (1997), section 3.8; percentiles as in Efron
    and Tibshirani, An introduction to the bootstrap (1993), section 13.3.
    """

    def __init__(self, clusters: Sequence[str], settings: BootstrapSettings = DEFAULTS) -> None:
        numbers = {name: number for number, name in enumerate(sorted(set(clusters)))}
        self.clusters = len(numbers)
        self.settings = settings
        self._cluster_of = [numbers[name] for name in clusters]

    def resample_sums(self, rows: Sequence[Sequence[float]], columns: int) -> Any:
        """Return the sums of the columns of each resample (array, resamples × `columns`); an item has a row of numbers.

        Statistics that are functions of sums (shares, kappa of two annotators) are computed from these all at once.

        Raises:
            ValueError: not one row per item.
            ExtraMissing: NumPy is not installed.
        """
        np = import_numpy()
        if len(rows) != len(self._cluster_of):
            raise ValueError(f"{len(rows)} items, but the clusters of {len(self._cluster_of)}")
        if not rows:
            return np.zeros((self.settings.resamples, columns))
        items = np.asarray(rows)
        of_clusters = np.zeros((self.clusters, columns), dtype=items.dtype)
        np.add.at(of_clusters, self._cluster_of, items)
        random = np.random.default_rng(self.settings.seed)
        draws = (random.integers(0, self.clusters, self.clusters) for _ in range(self.settings.resamples))
        return np.stack([np.bincount(drawn, minlength=self.clusters) @ of_clusters for drawn in draws])

    def percentile_interval(self, values: Any) -> Interval | None:
        """Return the percentile interval of a statistic's values over the resamples; NaN where it is undefined.

        None where resampling says nothing: fewer than two clusters, no two values differ, or the statistic is
        undefined in more of the resamples than lie outside the interval. A few undefined ones are left out.
        """
        np = import_numpy()
        defined = values[~np.isnan(values)]
        too_few = len(values) - len(defined) > (1 - LEVEL) * len(values)
        if self.clusters < 2 or too_few or not len(defined) or defined.min() == defined.max():
            return None
        tail = (1 - LEVEL) / 2
        low, high = np.quantile(defined, [tail, 1 - tail])
        return Interval(float(low), float(high))


def mcnemar_exact(only_first: int, only_second: int) -> float:
    """Return the two-sided p of the exact McNemar test from the discordant counts; 1 where there are none.

    `only_first` pairs are right by the first annotator alone, `only_second` by the second alone.
    Source: McNemar, Psychometrika 12 (1947); exact by the binomial distribution with share 1/2.

    Raises:
        ValueError: a negative count.
        ExtraMissing: SciPy is not installed.
    """
    if min(only_first, only_second) < 0:
        raise ValueError(f"counts cannot be negative: {only_first}, {only_second}")
    try:
        from scipy.stats import binomtest
    except ImportError as error:
        raise ExtraMissing("stats", error) from error
    discordant = only_first + only_second
    return float(binomtest(only_first, discordant).pvalue) if discordant else 1.0


def adjust_holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's step-down method, in the order given.

    Source: Holm, A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6 (1979).

    Raises:
        ValueError: a value is not between 0 and 1.
    """
    if any(not 0 <= p <= 1 for p in p_values):
        raise ValueError("a p-value lies between 0 and 1")
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def alpha_terms(labels: Sequence[int | None]) -> tuple[float, int, int]:
    """Return what an item adds to `krippendorff_alpha`: its unlike ordered pairs of labels, its zeros and its ones.

    An item with fewer than two labels adds nothing.
    """
    zeros, ones = labels.count(0), labels.count(1)
    return (2 * zeros * ones / (zeros + ones - 1), zeros, ones) if zeros + ones > 1 else (0.0, 0, 0)


def krippendorff_alpha(items: Iterable[Sequence[int | None]]) -> float | None:
    """Return Krippendorff's alpha for labels 0 and 1, from the labels of each item, whoever gave them. None is missing.

    None where alpha is undefined: no two labels can be compared, or all that can be are equal.
    Source: Krippendorff, Computing Krippendorff's alpha-reliability (2011), section C.
    """
    disagreeing, zeros, ones = 0.0, 0, 0
    for item, times in Counter(map(tuple, items)).items():
        unlike, more_zeros, more_ones = alpha_terms(item)
        disagreeing += times * unlike
        zeros += times * more_zeros
        ones += times * more_ones
    expected = 2 * zeros * ones
    return 1 - (zeros + ones - 1) * disagreeing / expected if expected else None


def bin_of(share: float) -> int:
    """Return which of the equally wide bins, from 0, a share from 0 to 1 is in.

    A bin has its lower edge and not its upper one: .8 is in that from .8 to .9. The last one has both.
    """
    return bisect_right([number / BINS for number in range(1, BINS)], share)


def bin_name(number: int) -> str:
    """Return a bin in the notation of intervals, as in `[0.8, 0.9)`."""
    return f"[{number / BINS}, {(number + 1) / BINS}{']' if number + 1 == BINS else ')'}"
