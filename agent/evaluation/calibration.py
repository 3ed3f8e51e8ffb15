"""Calibration: whether labels given with confidence .9 are right nine times in ten."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from agent.evaluation.measures import cluster_names
from agent.evaluation.sources import Decision
from agent.evaluation.statistics import ClusterBootstrap, Interval, ratio, wilson
from agent.types import Frozen

BINS = 10


def bin_of(share: float, bins: int = BINS) -> int:
    """Return which of `bins` equally wide bins, from 0, a share from 0 to 1 is in.

    A bin has its lower edge and not its upper one: .8 is in that from .8 to .9. The last one has both.
    """
    return bisect_right([number / bins for number in range(1, bins)], share)


def bin_name(number: int, bins: int = BINS) -> str:
    """Return a bin in the notation of intervals, as in `[0.8, 0.9)`."""
    return f"[{round(number / bins, 3)}, {round((number + 1) / bins, 3)}{']' if number + 1 == bins else ')'}"


class ReliabilityBin(Frozen):
    """Labels whose confidence is in the bin `name`, from `low` to `high` (`bin_of`); what has no items is None.

    `confidence` is their mean confidence, `accuracy` the share that is right, `interval` its Wilson interval.
    """

    name: str

    low: float
    high: float
    count: int
    confidence: float | None
    accuracy: float | None
    interval: Interval | None


def reliability(
    confidences: Sequence[float], right: Sequence[bool], *, bins: int = BINS, level: float = 0.95
) -> list[ReliabilityBin]:
    """Return a reliability table of `bins` equally wide bins.

    Source: Guo et al., On calibration of modern neural networks, ICML 2017, section 2; their bins have the upper edge.

    Raises:
        ValueError: sequences of different length, no bin, a confidence outside 0 to 1.
        ExtraMissing: SciPy is not installed.
    """
    _check(confidences, right)
    if bins < 1:
        raise ValueError(f"at least 1 bin is needed, not {bins}")
    members: list[list[tuple[float, bool]]] = [[] for _ in range(bins)]
    for confidence, is_right in zip(confidences, right, strict=True):
        members[bin_of(confidence, bins)].append((confidence, is_right))
    return [_bin(number, bins, inside, level) for number, inside in enumerate(members)]


def brier(confidences: Sequence[float], right: Sequence[bool]) -> float | None:
    """Return the Brier score, the mean squared distance of confidence from 1 (right) or 0 (wrong); None without items.

    Source: Brier, Verification of forecasts expressed in terms of probability, Mon. Weather Rev. 78 (1950), in the
    form for one event.

    Raises:
        ValueError: sequences of different length, a confidence outside 0 to 1.
    """
    _check(confidences, right)
    distances = [(confidence - is_right) ** 2 for confidence, is_right in zip(confidences, right, strict=True)]
    return sum(distances) / len(distances) if distances else None


def ece(table: Sequence[ReliabilityBin]) -> float | None:
    """Return the expected calibration error of a reliability table: the mean gap of its bins, weighted by items.

    None for a table without items. Depends on the number of bins: give it too.
    Source: Guo et al. (2017), equation 3.
    """
    total = sum(each.count for each in table)
    gaps = [
        each.count * abs(each.accuracy - each.confidence)
        for each in table
        if each.accuracy is not None and each.confidence is not None
    ]
    return sum(gaps) / total if total else None


def _bin(number: int, bins: int, inside: Sequence[tuple[float, bool]], level: float) -> ReliabilityBin:
    count = len(inside)
    hits = sum(is_right for _, is_right in inside)
    return ReliabilityBin(
        name=bin_name(number, bins),
        low=number / bins,
        high=(number + 1) / bins,
        count=count,
        confidence=sum(confidence for confidence, _ in inside) / count if count else None,
        accuracy=hits / count if count else None,
        interval=wilson(hits, count, level) if count else None,
    )


def _check(confidences: Sequence[float], right: Sequence[bool]) -> None:
    if len(confidences) != len(right):
        raise ValueError(f"{len(confidences)} confidences for {len(right)} labels")
    if any(not 0 <= confidence <= 1 for confidence in confidences):
        raise ValueError("a confidence lies between 0 and 1")


class Calibration(Frozen):
    """Calibration of the labels that have a confidence and gold.

    `brier_interval` is by bootstrap over queries. `ece` has none: noise alone makes gaps between confidence and
    accuracy, and resampling adds noise; the bins of `table`, of which it is the mean gap, have intervals.
    """

    labels: int
    brier: float
    brier_interval: Interval | None
    ece: float
    table: tuple[ReliabilityBin, ...]


def calibrate(
    decisions: Mapping[str, Decision],
    gold: Mapping[str, int],
    queries: Mapping[str, str],
    *,
    seed: int = 0,
    resamples: int = 2000,
    level: float = 0.95,
) -> Calibration | None:
    """Compare confidence with being right; None where no label has both a confidence and gold.

    Raises:
        ExtraMissing: NumPy or SciPy is not installed.
    """
    judged = {
        pair: (decision.confidence, decision.label == gold[pair])
        for pair, decision in decisions.items()
        if decision.label is not None and decision.confidence is not None and pair in gold
    }
    confidences = [confidence for confidence, _ in judged.values()]
    right = [is_right for _, is_right in judged.values()]
    table = reliability(confidences, right, level=level)
    score, error = brier(confidences, right), ece(table)
    if score is None or error is None:
        return None
    clusters = cluster_names(judged, queries)
    resampling = ClusterBootstrap(clusters, seed=seed, resamples=resamples, level=level)
    sums = resampling.sums([(1, (confidence - is_right) ** 2) for confidence, is_right in judged.values()])
    return Calibration(
        labels=len(judged),
        brier=score,
        brier_interval=resampling.percentiles(ratio(sums[:, 1], sums[:, 0])),
        ece=error,
        table=tuple(table),
    )
