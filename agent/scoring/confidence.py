"""Calibration: whether labels given with confidence .9 are right nine times in ten."""

from __future__ import annotations

from collections.abc import Mapping

from agent.scoring.run_labels import Decision
from agent.scoring.scores import cluster_names
from agent.stats.bootstrap import ClusterBootstrap, ratio
from agent.stats.calibration import ReliabilityBin, brier, ece, reliability
from agent.stats.intervals import Interval
from agent.types import Frozen


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
