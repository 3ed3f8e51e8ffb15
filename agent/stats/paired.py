"""Comparisons of two annotators on the same pairs, and of many at once."""

from __future__ import annotations

from collections.abc import Sequence

from agent.stats.libraries import binomial_test


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
