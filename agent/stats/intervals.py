"""Intervals for shares."""

from __future__ import annotations

from dataclasses import dataclass

from agent.stats.libraries import binomial_test


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
