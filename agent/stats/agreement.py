"""Agreement of annotators on nominal labels; None stands for a label that is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

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


def _labelled_by_both(first: Sequence[Label], second: Sequence[Label]) -> list[tuple[Hashable, Hashable]]:
    return [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
