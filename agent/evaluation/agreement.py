"""Agreement of annotators on nominal labels, with intervals over queries; None stands for a label that is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations

from agent.evaluation.labels import Annotator
from agent.evaluation.measures import CELLS, FORMULAS, Confusion, cell, cluster_names
from agent.evaluation.statistics import ClusterBootstrap, Interval, ratio
from agent.store.majority import PairLabel
from agent.types import Frozen

Label = Hashable | None


def observed_agreement(first: Sequence[Label], second: Sequence[Label]) -> float | None:
    """Return the share of items labelled alike, of those that both labelled; None where there are none.

    Raises:
        ValueError: the annotators' rows are not equally long.
    """
    both = _labelled_by_both(first, second)
    return sum(a == b for a, b in both) / len(both) if both else None


def cohen_kappa(first: Sequence[Label], second: Sequence[Label]) -> float | None:
    """Return Cohen's kappa over the items that both labelled.

    None where it is undefined: no such item, or both annotators gave one and the same label throughout, so that
    agreement by chance is certain.
    Source: Cohen, A coefficient of agreement for nominal scales, Educ. Psychol. Meas. 20 (1960).

    Raises:
        ValueError: the annotators' rows are not equally long.
    """
    both = _labelled_by_both(first, second)
    # in whole numbers, so that certain agreement by chance is told from nearly certain
    counts, others = Counter(a for a, _ in both), Counter(b for _, b in both)
    by_chance = sum(count * others[label] for label, count in counts.items())
    observed = len(both) * sum(a == b for a, b in both)
    most = len(both) ** 2
    return (observed - by_chance) / (most - by_chance) if by_chance < most else None


def krippendorff_alpha(ratings: Sequence[Sequence[Label]]) -> float | None:
    """Return Krippendorff's alpha for nominal data, from one row per annotator with None for what is missing.

    Raises:
        ValueError: the annotators' rows are not equally long.
    """
    return alpha_of_items(zip(*ratings, strict=True))


def alpha_of_items(items: Iterable[Iterable[Label]]) -> float | None:
    """Return Krippendorff's alpha for nominal data, from the labels of each item, whoever gave them.

    Items with fewer than two labels do not count. None where alpha is undefined: no two labels can be compared, or
    all that can be are of one category.
    Source: Krippendorff, Computing Krippendorff's alpha-reliability (2011), section C.
    """
    disagreeing = 0.0
    categories: Counter[Hashable] = Counter()
    for item in items:
        labels = Counter(label for label in item if label is not None)
        given = labels.total()
        if given < 2:
            continue
        categories += labels
        # ordered pairs of unlike labels within the item
        disagreeing += (given**2 - sum(count**2 for count in labels.values())) / (given - 1)
    total = categories.total()
    expected = total**2 - sum(count**2 for count in categories.values())
    return 1 - (total - 1) * disagreeing / expected if expected else None


def mean_agreement(labels: Iterable[PairLabel]) -> float | None:
    """Return the mean agreement between rounds over all pairs that have one, None where none has."""
    found = [label.agreement for label in labels if label.agreement is not None]
    return sum(found) / len(found) if found else None


def rounds_alpha(labels: Iterable[PairLabel]) -> float | None:
    """Return Krippendorff's alpha between rounds, the measure of CoSQA+ (version 1, section 4.2), None where undefined.

    A round without a label has none to compare.
    """
    return alpha_of_items(label.votes for label in labels)


def _labelled_by_both(first: Sequence[Label], second: Sequence[Label]) -> list[tuple[Hashable, Hashable]]:
    return [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]


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
