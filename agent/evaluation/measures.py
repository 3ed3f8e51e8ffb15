"""How labels compare with gold and annotators with each other, with intervals over queries."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from typing import Any

from agent.evaluation.labels import Labels, Rater
from agent.evaluation.statistics import (
    DEFAULTS,
    LEVEL,
    BootstrapSettings,
    ClusterBootstrap,
    Interval,
    alpha_terms,
    krippendorff_alpha,
    ratio,
    wilson_interval,
)
from agent.types import Frozen


@dataclass(frozen=True)
class Confusion:
    """Counts of pairs; `null_positive` and `null_negative` are those without a label, by gold.

    In formulas each count may also be an array: one number per resample.
    """

    tp: int = 0
    fp: int = 0
    fn: int = 0
    tn: int = 0
    null_positive: int = 0
    null_negative: int = 0

    @property
    def labelled(self) -> int:
        """Number of pairs with a label."""
        return self.tp + self.fp + self.fn + self.tn

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return self.labelled + self.null_positive + self.null_negative

    def proportions(self) -> dict[str, tuple[int, int]]:
        """Return part and whole of each measure that is a share of pairs."""
        right = self.tp + self.tn
        return {
            "coverage": (self.labelled, self.pairs),
            "accuracy": (right, self.pairs),
            "selective_accuracy": (right, self.labelled),
            "precision": (self.tp, self.tp + self.fp),
            "recall": (self.tp, self.tp + self.fn + self.null_positive),
        }


CELLS = tuple(field.name for field in fields(Confusion))
_CELL: Mapping[tuple[int | None, int | None], str] = {
    (1, 1): "tp",
    (1, 0): "fp",
    (0, 1): "fn",
    (0, 0): "tn",
    (None, 1): "null_positive",
    (None, 0): "null_negative",
}


def confusion_cell(label: int | None, gold: int | None) -> str:
    """Return the field of `Confusion` that a pair belongs to.

    Raises:
        ValueError: the label is not 0, 1 or None, or gold is neither 0 nor 1.
    """
    try:
        return _CELL[label, gold]
    except KeyError:
        raise ValueError(f"labels are 0 or 1 (None where there is none), not {label!r} with gold {gold!r}") from None


def compute_measures(confusion: Confusion) -> dict[str, float | None]:
    """Return every measure of `FORMULAS`, None where it is undefined.

    Raises:
        ExtraMissing: NumPy is not installed.
    """
    values = {name: float(formula(confusion)) for name, formula in FORMULAS.items()}
    return {name: None if math.isnan(value) else value for name, value in values.items()}


def wilson_intervals(confusion: Confusion) -> dict[str, Interval]:
    """Return Wilson intervals of the measures that are shares; a share of no pairs is left out."""
    return {name: wilson_interval(part, whole) for name, (part, whole) in confusion.proportions().items() if whole}


# What has a quotient is NaN where that is undefined.
Formula = Callable[[Confusion], Any]


def _share(name: str) -> Formula:
    return lambda counts: ratio(*counts.proportions()[name])


def _f1(c: Confusion) -> Any:
    return ratio(2 * c.tp, 2 * c.tp + c.fp + c.fn + c.null_positive)


def _kappa(c: Confusion) -> Any:
    by_chance = (c.tp + c.fp) * (c.tp + c.fn) + (c.tn + c.fn) * (c.tn + c.fp)
    return ratio(c.labelled * (c.tp + c.tn) - by_chance, c.labelled**2 - by_chance)


def _alpha(c: Confusion) -> Any:
    wrong = c.fp + c.fn
    ones, zeros = 2 * c.tp + wrong, 2 * c.tn + wrong
    return 1 - ratio((ones + zeros - 1) * wrong, ones * zeros)


FORMULAS: Mapping[str, Formula] = {
    **{name: _share(name) for name in Confusion().proportions()},
    "f1": _f1,
    "kappa": _kappa,
    "alpha": _alpha,
}


class Scores(Frozen):
    """What labels are worth, on the pairs that have gold and were given to the annotator.

    A value that is undefined (precision where nothing was labelled 1) is None. A label of null is wrong in `accuracy`,
    missed in `recall` and `f1` where gold is 1, and left out of `selective_accuracy`, `kappa` and `alpha`.

    `wilson` has an interval for each share that is defined (it takes pairs for independent), `bootstrap` one over
    queries for each measure: None where resampling says nothing (`ClusterBootstrap.percentiles`).

    `queries` counts clusters; each of the `without_query` pairs whose query is not known is a cluster of its own.
    `gold_only` pairs have gold and no line in the labels, `predicted_only` the other way round; both are left out.
    """

    pairs: int
    labelled: int
    confusion: Confusion
    coverage: float | None
    accuracy: float | None
    selective_accuracy: float | None
    precision: float | None
    recall: float | None
    f1: float | None
    kappa: float | None
    alpha: float | None
    wilson: dict[str, Interval]
    bootstrap: dict[str, Interval | None]
    queries: int
    without_query: int
    gold_only: int
    predicted_only: int
    seed: int
    resamples: int
    level: float


def score(
    predicted: Labels, gold: Mapping[str, int], queries: Mapping[str, str], settings: BootstrapSettings = DEFAULTS
) -> Scores:
    """Compare labels (0, 1 or None) with gold (0 or 1), both by id; `queries` says which pairs belong together.

    Raises:
        ValueError: a label that is neither 0 nor 1.
        ExtraMissing: NumPy is not installed.
    """
    ids = [pair for pair in gold if pair in predicted]
    cells = [confusion_cell(predicted[pair], gold[pair]) for pair in ids]
    resampling = ClusterBootstrap(name_clusters(ids, queries), settings)
    confusion = Confusion(**Counter(cells))
    counts = _resampled(cells, resampling)
    return Scores(
        pairs=confusion.pairs,
        labelled=confusion.labelled,
        confusion=confusion,
        **compute_measures(confusion),
        wilson=wilson_intervals(confusion),
        bootstrap={name: resampling.percentile_interval(formula(counts)) for name, formula in FORMULAS.items()},
        queries=resampling.clusters,
        without_query=sum(pair not in queries for pair in ids),
        gold_only=len(gold) - len(ids),
        predicted_only=sum(pair not in gold for pair in predicted),
        seed=settings.seed,
        resamples=settings.resamples,
        level=LEVEL,
    )


def name_clusters(ids: Iterable[str], queries: Mapping[str, str]) -> list[str]:
    """Return the cluster of each pair: its query, or the pair alone where that is not known."""
    # two kinds of names that cannot meet, so that an id which is also a query's text joins no cluster
    return [f"query {queries[pair]}" if pair in queries else f"pair {pair}" for pair in ids]


def _resampled(cells: Sequence[str], resampling: ClusterBootstrap) -> Confusion:
    """Return counts with one number per resample; an item without a cell has an empty name."""
    sums = resampling.resample_sums([[int(name == each) for name in CELLS] for each in cells], len(CELLS))
    return Confusion(**{name: sums[:, column] for column, name in enumerate(CELLS)})


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
    Intervals are by bootstrap over `queries`, None where resampling says nothing.
    """

    of: str
    annotators: tuple[str, ...]
    pairs: int
    comparable: int
    queries: int
    alpha: float | None
    alpha_interval: Interval | None
    pairwise: tuple[PairAgreement, ...]


def measure_agreement(
    annotators: Sequence[Rater],
    queries: Mapping[str, str],
    settings: BootstrapSettings = DEFAULTS,
    *,
    of: str = "annotators",
) -> Agreement:
    """Compare annotators with each other; a null label is a missing one.

    Raises:
        ExtraMissing: NumPy is not installed.
    """
    ids = sorted({pair for annotator in annotators for pair in annotator.labels})
    ratings = {annotator.name: [annotator.labels.get(pair) for pair in ids] for annotator in annotators}
    items = list(zip(*ratings.values(), strict=True))
    resampling = ClusterBootstrap(name_clusters(ids, queries), settings)
    return Agreement(
        of=of,
        annotators=tuple(ratings),
        pairs=len(ids),
        comparable=sum(sum(label is not None for label in item) > 1 for item in items),
        queries=resampling.clusters,
        alpha=krippendorff_alpha(items),
        alpha_interval=_alpha_interval(items, resampling),
        pairwise=tuple(
            _compare(first, second, zip(ratings[first], ratings[second], strict=True), resampling)
            for first, second in combinations(ratings, 2)
        ),
    )


def _compare(
    first: str, second: str, labels: Iterable[tuple[int | None, int | None]], resampling: ClusterBootstrap
) -> PairAgreement:
    cells = ["" if None in (one, other) else confusion_cell(one, other) for one, other in labels]
    confusion = Confusion(**Counter(each for each in cells if each))
    values = compute_measures(confusion)
    return PairAgreement(
        first=first,
        second=second,
        both=confusion.pairs,
        agreement=values["accuracy"],
        kappa=values["kappa"],
        kappa_interval=resampling.percentile_interval(FORMULAS["kappa"](_resampled(cells, resampling))),
    )


def _alpha_interval(items: Sequence[Sequence[int | None]], resampling: ClusterBootstrap) -> Interval | None:
    """Resample alpha as a function of sums over pairs, as in `krippendorff_alpha`."""
    disagreeing, zeros, ones = resampling.resample_sums([alpha_terms(item) for item in items], 3).T
    return resampling.percentile_interval(1 - ratio((zeros + ones - 1) * disagreeing, 2 * zeros * ones))
