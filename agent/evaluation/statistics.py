"""Intervals, resampling of clusters, paired tests. NumPy and SciPy, of the extra `stats`, are imported when used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

from agent.errors import ExtraMissing


def numpy() -> ModuleType:
    """Return NumPy.

    Raises:
        ExtraMissing: it is not installed.
    """
    try:
        import numpy
    except ImportError as error:
        raise ExtraMissing("stats", error) from error
    return numpy


def binomial_test(successes: int, total: int, share: float = 0.5) -> Any:
    """Return SciPy's result of an exact two-sided binomial test (`pvalue`, `proportion_ci`).

    Raises:
        ExtraMissing: SciPy is not installed.
    """
    try:
        from scipy.stats import binomtest  # type: ignore[import-untyped]
    except ImportError as error:
        raise ExtraMissing("stats", error) from error
    return binomtest(successes, total, share)


@dataclass(frozen=True)
class Interval:
    """From `low` to `high`, both included."""

    low: float
    high: float


def check_level(level: float) -> None:
    """Check that a level of confidence lies between 0 and 1.

    Raises:
        ValueError: it does not.
    """
    if not 0 < level < 1:
        raise ValueError(f"a level of confidence lies between 0 and 1, not {level}")


def wilson(successes: int, total: int, level: float = 0.95) -> Interval:
    """Return Wilson's score interval of a share of independent items; 0 to 1 (its limit) where there are none.

    Source: Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927).

    Raises:
        ValueError: more successes than items, or a level outside 0 to 1.
        ExtraMissing: SciPy is not installed.
    """
    check_level(level)
    if not 0 <= successes <= total:
        raise ValueError(f"{successes} successes among {total} items")
    if total == 0:
        return Interval(0.0, 1.0)
    found = binomial_test(successes, total).proportion_ci(confidence_level=level, method="wilson")
    return Interval(float(found.low), float(found.high))


T = TypeVar("T")


class ClusterBootstrap:
    """Draws as many clusters as there are, with replacement, `resamples` times; equal seeds draw alike.

    `clusters` names the cluster of each item. Neither their order nor that of the items matters to `sums`.
    Source: Davison and Hinkley, Bootstrap methods and their application (1997), section 3.8; percentiles as in Efron
    and Tibshirani, An introduction to the bootstrap (1993), section 13.3.

    Raises:
        ValueError: fewer than 1 resample, or a level outside 0 to 1.
        ExtraMissing: NumPy is not installed.
    """

    def __init__(self, clusters: Sequence[str], *, seed: int = 0, resamples: int = 2000, level: float = 0.95) -> None:
        check_level(level)
        if resamples < 1:
            raise ValueError(f"at least 1 resample is needed, not {resamples}")
        numbers = {name: number for number, name in enumerate(sorted(set(clusters)))}
        self.clusters = len(numbers)
        self.resamples = resamples
        self.level = level
        self._cluster_of = [numbers[name] for name in clusters]
        self._seed = seed

    def sums(self, rows: Sequence[Sequence[float]]) -> Any:
        """Return the column sums of each resample (array, resamples × columns); each item has a row of numbers.

        Statistics that are functions of sums (shares, kappa of two annotators) are computed from these all at once.

        Raises:
            ValueError: not one row per item.
        """
        np = numpy()
        self._check(rows)
        if not self.clusters:
            return np.zeros((self.resamples, 0))
        items = np.asarray(rows)
        of_clusters = np.zeros((self.clusters, items.shape[1]), dtype=items.dtype)
        np.add.at(of_clusters, self._cluster_of, items)
        return np.stack([np.bincount(drawn, minlength=self.clusters) @ of_clusters for drawn in self._draws()])

    def interval(self, items: Sequence[T], statistic: Callable[[Sequence[T]], float | None]) -> Interval | None:
        """Return the percentile interval of any statistic of the items, which is called once per resample.

        None where `percentiles` gives none. A statistic that is undefined returns None.

        Raises:
            ValueError: not one cluster per item.
        """
        self._check(items)
        members: list[list[T]] = [[] for _ in range(self.clusters)]
        for number, item in zip(self._cluster_of, items, strict=True):
            members[number].append(item)
        values = (statistic([item for number in drawn for item in members[number]]) for drawn in self._draws())
        return self.percentiles(float("nan") if value is None else value for value in values)

    def percentiles(self, values: Iterable[float]) -> Interval | None:
        """Return the percentile interval of a statistic's values over the resamples; NaN where it is undefined.

        None where resampling tells nothing: fewer than two clusters, no two values differ, or the statistic is
        undefined in more of the resamples than lie outside the interval. A few undefined ones are left out.
        """
        np = numpy()
        array = np.fromiter(values, dtype=float)
        defined = array[~np.isnan(array)]
        too_few = len(array) - len(defined) > (1 - self.level) * len(array)
        if self.clusters < 2 or too_few or not len(defined) or defined.min() == defined.max():
            return None
        tail = (1 - self.level) / 2
        low, high = np.quantile(defined, [tail, 1 - tail])
        return Interval(float(low), float(high))

    def _draws(self) -> Iterator[Any]:
        random = numpy().random.default_rng(self._seed)
        for _ in range(self.resamples):
            yield random.integers(0, self.clusters, self.clusters)

    def _check(self, items: Sequence[Any]) -> None:
        if len(items) != len(self._cluster_of):
            raise ValueError(f"{len(items)} items, but the clusters of {len(self._cluster_of)}")


def ratio(above: Any, below: Any) -> Any:
    """Return a quotient of numbers or arrays, as an array, NaN where it is undefined (division by zero)."""
    np = numpy()
    above, below = np.broadcast_arrays(np.asarray(above, dtype=float), np.asarray(below, dtype=float))
    return np.divide(above, below, out=np.full(below.shape, np.nan), where=below != 0)


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
    discordant = only_first + only_second
    return float(binomial_test(only_first, discordant).pvalue) if discordant else 1.0


def least_discordant(alpha: float = 0.05) -> int:
    """Return how many discordant pairs `mcnemar_exact` needs to come below `alpha`, were all of them on one side.

    Raises:
        ValueError: `alpha` is not between 0 and 1.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha lies between 0 and 1, not {alpha}")
    count, p = 1, 1.0
    while p >= alpha:
        count, p = count + 1, p / 2
    return count


def holm(p_values: Sequence[float]) -> list[float]:
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
