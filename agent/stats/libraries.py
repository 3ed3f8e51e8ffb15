"""NumPy and SciPy, which come with the extra `stats`: imported when they are used, and missed in words."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from agent.errors import ExtraMissing


def numpy() -> ModuleType:
    """Return NumPy.

    Raises:
        ExtraMissing: it is not installed.
    """
    try:
        import numpy
    except ImportError as error:
        raise ExtraMissing("stats", error) from error
    return numpy


def binomial_test(successes: int, total: int, share: float = 0.5) -> Any:
    """Return SciPy's result of an exact two-sided binomial test (`pvalue`, `proportion_ci`).

    Raises:
        ExtraMissing: SciPy is not installed.
    """
    try:
        from scipy.stats import binomtest  # type: ignore[import-untyped]
    except ImportError as error:
        raise ExtraMissing("stats", error) from error
    return binomtest(successes, total, share)
