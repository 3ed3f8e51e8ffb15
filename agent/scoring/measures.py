"""The measures of labels against gold, as functions of six counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from agent.stats.bootstrap import ratio
from agent.stats.intervals import Interval, wilson


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

    def shares(self) -> dict[str, tuple[int, int]]:
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
_CELL = {(1, 1): "tp", (1, 0): "fp", (0, 1): "fn", (0, 0): "tn", (None, 1): "null_positive", (None, 0): "null_negative"}


def cell(label: int | None, gold: int) -> str:
    """Return the field of `Confusion` that a pair belongs to.

    Raises:
        ValueError: the label is not 0, 1 or None, or gold is neither 0 nor 1.
    """
    try:
        return _CELL[label, gold]
    except KeyError:
        raise ValueError(f"labels are 0 or 1 (None where there is none), not {label!r} with gold {gold!r}") from None


def measures(confusion: Confusion) -> dict[str, float | None]:
    """Return every measure of `FORMULAS`, None where it is undefined.

    Raises:
        ExtraMissing: NumPy is not installed.
    """
    values = {name: float(formula(confusion)) for name, formula in FORMULAS.items()}
    return {name: None if math.isnan(value) else value for name, value in values.items()}


def wilson_intervals(confusion: Confusion, level: float = 0.95) -> dict[str, Interval]:
    """Return Wilson intervals of the measures that are shares; a share of no pairs is left out.

    Raises:
        ExtraMissing: SciPy is not installed.
    """
    return {name: wilson(part, whole, level) for name, (part, whole) in confusion.shares().items() if whole}


# What has a quotient is NaN where that is undefined.
Formula = Callable[[Confusion], Any]


def _share(name: str) -> Formula:
    return lambda counts: ratio(*counts.shares()[name])


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
    **{name: _share(name) for name in Confusion().shares()},
    "f1": _f1,
    "kappa": _kappa,
    "alpha": _alpha,
}
