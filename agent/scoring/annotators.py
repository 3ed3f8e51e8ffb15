"""Agreement between annotators, with intervals over queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from agent.scoring.labels import Annotator
from agent.scoring.measures import CELLS, FORMULAS, Confusion, cell
from agent.scoring.scores import cluster_names
from agent.stats.agreement import cohen_kappa, krippendorff_alpha, observed_agreement
from agent.stats.bootstrap import ClusterBootstrap, ratio
from agent.stats.intervals import Interval
from agent.types import Frozen


class PairAgreement(Frozen):
    """Two annotators on the `both` pairs that both labelled; None where undefined."""

    first: str
    second: str
    both: int
    agreement: float | None
    kappa: float | None
    kappa_interval: Interval | None


class Agreement(Frozen):
    """Agreement of annotators: Krippendorff's alpha of all, Cohen's kappa of every two.

    `pairs` have a label (or null) of some annotator, `comparable` labels of at least two; alpha is over those.
    Intervals are by bootstrap over `queries`, None where resampling tells nothing.
    """

    of: str
    annotators: tuple[str, ...]
    pairs: int
    comparable: int
    queries: int
    alpha: float | None
    alpha_interval: Interval | None
    pairwise: tuple[PairAgreement, ...]


def agree(
    annotators: Sequence[Annotator],
    queries: Mapping[str, str],
    *,
    of: str = "annotators",
    seed: int = 0,
    resamples: int = 2000,
    level: float = 0.95,
) -> Agreement:
    """Compare annotators with each other; a null label is a missing one.

    Raises:
        ExtraMissing: NumPy is not installed.
    """
    ids = sorted({pair for annotator in annotators for pair in annotator.labels})
    ratings = [[annotator.labels.get(pair) for pair in ids] for annotator in annotators]
    comparable = [item for item in zip(*ratings, strict=True) if sum(label is not None for label in item) > 1]
    resampling = ClusterBootstrap(cluster_names(ids, queries), seed=seed, resamples=resamples, level=level)
    named = [(annotator.name, row) for annotator, row in zip(annotators, ratings, strict=True)]
    return Agreement(
        of=of,
        annotators=tuple(annotator.name for annotator in annotators),
        pairs=len(ids),
        comparable=len(comparable),
        queries=resampling.clusters,
        alpha=krippendorff_alpha(ratings),
        alpha_interval=_alpha_interval(ratings, resampling),
        pairwise=tuple(_compare(*first, *second, resampling) for first, second in combinations(named, 2)),
    )


def _compare(
    first: str, labels: Sequence[int | None], second: str, others: Sequence[int | None], resampling: ClusterBootstrap
) -> PairAgreement:
    both = sum(a is not None and b is not None for a, b in zip(labels, others, strict=True))
    return PairAgreement(
        first=first,
        second=second,
        both=both,
        agreement=observed_agreement(labels, others),
        kappa=cohen_kappa(labels, others),
        kappa_interval=_kappa_interval(labels, others, resampling) if both else None,
    )


def _kappa_interval(
    labels: Sequence[int | None], others: Sequence[int | None], resampling: ClusterBootstrap
) -> Interval | None:
    cells = ["" if b is None else cell(a, b) for a, b in zip(labels, others, strict=True)]
    sums = resampling.sums([[int(name == each) for name in CELLS] for each in cells])
    counts = Confusion(**{name: sums[:, column] for column, name in enumerate(CELLS)})
    return resampling.percentiles(FORMULAS["kappa"](counts))


def _alpha_interval(ratings: Sequence[Sequence[int | None]], resampling: ClusterBootstrap) -> Interval | None:
    """Resample alpha as a function of sums over pairs, as in `krippendorff_alpha`."""
    rows = [_alpha_terms(item) for item in zip(*ratings, strict=True)]
    if not rows:
        return None
    disagreeing, zeros, ones = resampling.sums(rows).T
    total = zeros + ones
    alphas = 1 - ratio((total - 1) * disagreeing, 2 * zeros * ones)
    return resampling.percentiles(alphas)


def _alpha_terms(item: Sequence[int | None]) -> tuple[float, int, int]:
    zeros, ones = item.count(0), item.count(1)
    if zeros + ones < 2:
        return 0.0, 0, 0
    return 2 * zeros * ones / (zeros + ones - 1), zeros, ones
