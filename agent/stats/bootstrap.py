"""Intervals by resampling whole clusters: pairs of one query stand or fall together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from agent.stats.intervals import Interval, check_level
from agent.stats.libraries import numpy

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
