"""Computes accuracy and other measures, and inter-annotator agreement, with cluster bootstrap intervals."""

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
    divide,
    krippendorff_alpha,
    wilson_interval,
)
from agent.types import Frozen


@dataclass(frozen=True)
class Confusion:
    """A confusion matrix.

    `null_positive` counts unlabelled pairs with the gold label 1. `null_negative` counts unlabelled pairs with the gold
    label 0. In the bootstrap, each count is an array with one value per resample.
    """

    tp: int = 0
    fp: int = 0
    fn: int = 0
    tn: int = 0
    null_positive: int = 0
    null_negative: int = 0

    @property
    def labelled(self) -> int:
        """Number of labelled pairs."""
        return self.tp + self.fp + self.fn + self.tn

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return self.labelled + self.null_positive + self.null_negative

    def proportions(self) -> dict[str, tuple[int, int]]:
        """Return the numerator and denominator of each measure that is a proportion of pairs."""
        correct = self.tp + self.tn
        return {
            "coverage": (self.labelled, self.pairs),
            "accuracy": (correct, self.pairs),
            "selective_accuracy": (correct, self.labelled),
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
    """Return the name of the `Confusion` field that counts pairs with this label and this gold label.

    Raises:
        ValueError: the label is not 0, 1 or None, or the gold label is not 0 or 1.
    """
    try:
        return _CELL[label, gold]
    except KeyError:
        raise ValueError(
            f"label {label!r}, gold label {gold!r}: a label must be 0, 1 or None, and a gold label must be 0 or 1"
        ) from None


def compute_measures(confusion: Confusion) -> dict[str, float | None]:
    """Compute every measure in `FORMULAS`. Undefined measures are None.

    Raises:
        ExtraMissing: NumPy is not installed.
    """
    values = {name: float(formula(confusion)) for name, formula in FORMULAS.items()}
    return {name: None if math.isnan(value) else value for name, value in values.items()}


def wilson_intervals(confusion: Confusion) -> dict[str, Interval]:
    """Return the Wilson interval for each measure that is a proportion with a denominator above 0."""
    return {name: wilson_interval(part, total) for name, (part, total) in confusion.proportions().items() if total}


# A formula returns NaN where its denominator is 0.
Formula = Callable[[Confusion], Any]


def _proportion(name: str) -> Formula:
    return lambda counts: divide(*counts.proportions()[name])


def _f1(c: Confusion) -> Any:
    return divide(2 * c.tp, 2 * c.tp + c.fp + c.fn + c.null_positive)


def _kappa(c: Confusion) -> Any:
    by_chance = (c.tp + c.fp) * (c.tp + c.fn) + (c.tn + c.fn) * (c.tn + c.fp)
    return divide(c.labelled * (c.tp + c.tn) - by_chance, c.labelled**2 - by_chance)


def _alpha(c: Confusion) -> Any:
    errors = c.fp + c.fn
    ones, zeros = 2 * c.tp + errors, 2 * c.tn + errors
    return 1 - divide((ones + zeros - 1) * errors, ones * zeros)


FORMULAS: Mapping[str, Formula] = {
    **{name: _proportion(name) for name in Confusion().proportions()},
    "f1": _f1,
    "kappa": _kappa,
    "alpha": _alpha,
}


class Scores(Frozen):
    """The scores of an annotator on the pairs that have both a gold label and a label, which may be null.

    Undefined measures are None, for example precision if no pair is labelled 1. A null label counts as wrong in
    `accuracy`. If the gold label is 1, it also counts as a false negative in `recall` and `f1`. `selective_accuracy`,
    `kappa` and `alpha` ignore null labels.

    `wilson` contains a Wilson score interval for each proportion that is defined. These intervals assume that pairs are
    independent. `bootstrap` contains percentile intervals for all measures, which are computed by resampling queries
    (`ClusterBootstrap`). Undefined intervals are None.

    `queries` is the number of clusters. `without_query` is the number of pairs whose query is unknown. Each of these
    pairs is its own cluster. `gold_only` is the number of pairs that have a gold label but are missing from the labels.
    `predicted_only` is the number of pairs that are in the labels but have no gold label. Neither group is scored.
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
    """Score labels (0, 1 or None) against gold labels (0 or 1). All mappings are keyed by pair id.

    `queries` defines the clusters for the bootstrap.

    Raises:
        ValueError: a label is not 0, 1 or None, or a gold label is not 0 or 1.
        ExtraMissing: NumPy is not installed.
    """
    ids = [pair for pair in gold if pair in predicted]
    cells = [confusion_cell(predicted[pair], gold[pair]) for pair in ids]
    resampling = ClusterBootstrap(name_clusters(ids, queries), settings)
    confusion = Confusion(**Counter(cells))
    counts = _resample_confusion(cells, resampling)
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
    """Return a cluster name for each pair.

    The name is based on the query of the pair, or on the pair's id if the query is unknown.
    """
    # the prefixes prevent a pair id from being equal to the text of a query
    return [f"query {queries[pair]}" if pair in queries else f"pair {pair}" for pair in ids]


def _resample_confusion(cells: Sequence[str], resampling: ClusterBootstrap) -> Confusion:
    """Return a confusion matrix whose counts are arrays with one value per resample. Empty cell names are ignored."""
    sums = resampling.resample_sums([[int(name == cell) for name in CELLS] for cell in cells], len(CELLS))
    return Confusion(**{name: sums[:, column] for column, name in enumerate(CELLS)})


class PairAgreement(Frozen):
    """Agreement between two annotators. `both` is the number of pairs that both annotators labelled.

    Undefined values are None.
    """

    first: str
    second: str
    both: int
    agreement: float | None
    kappa: float | None
    kappa_interval: Interval | None


class Agreement(Frozen):
    """Inter-annotator agreement: Krippendorff's alpha for all annotators and Cohen's kappa for each pair of annotators.

    `pairs` is the number of pairs with a label (which may be null) from at least one annotator. `comparable` is the
    number of pairs with labels from at least two annotators. Alpha uses only comparable pairs. Intervals come from a
    cluster bootstrap with queries as clusters. Undefined values and intervals are None.
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
    """Measure the agreement between annotators. Null labels are treated as missing.

    Raises:
        ExtraMissing: NumPy is not installed.
    """
    ids = sorted({pair for annotator in annotators for pair in annotator.labels})
    ratings = {annotator.name: [annotator.labels.get(pair) for pair in ids] for annotator in annotators}
    items = list(zip(*ratings.values(), strict=True))
    resampling = ClusterBootstrap(name_clusters(ids, queries), settings)
    # in the same way as in `krippendorff_alpha`, alpha is computed from sums over pairs
    observed, zeros, ones = resampling.resample_sums([alpha_terms(item) for item in items], 3).T
    alphas = 1 - divide((zeros + ones - 1) * observed, 2 * zeros * ones)
    return Agreement(
        of=of,
        annotators=tuple(ratings),
        pairs=len(ids),
        comparable=sum(sum(label is not None for label in item) > 1 for item in items),
        queries=resampling.clusters,
        alpha=krippendorff_alpha(items),
        alpha_interval=resampling.percentile_interval(alphas),
        pairwise=tuple(
            _compare_raters(first, second, zip(ratings[first], ratings[second], strict=True), resampling)
            for first, second in combinations(ratings, 2)
        ),
    )


def _compare_raters(
    first: str, second: str, label_pairs: Iterable[tuple[int | None, int | None]], resampling: ClusterBootstrap
) -> PairAgreement:
    cells = ["" if None in labels else confusion_cell(*labels) for labels in label_pairs]
    confusion = Confusion(**Counter(cell for cell in cells if cell))
    values = compute_measures(confusion)
    return PairAgreement(
        first=first,
        second=second,
        both=confusion.pairs,
        agreement=values["accuracy"],
        kappa=values["kappa"],
        kappa_interval=resampling.percentile_interval(FORMULAS["kappa"](_resample_confusion(cells, resampling))),
    )
