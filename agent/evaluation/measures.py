"""How labels compare with gold: measures with intervals over queries, and where a run is right and wrong."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from agent.evaluation.sources import Decision
from agent.evaluation.statistics import ClusterBootstrap, Interval, ratio, wilson
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


class Scores(Frozen):
    """What labels are worth, on the pairs that have gold and were given to the annotator.

    A value that is undefined (precision where nothing was labelled 1) is None. A label of null is wrong in `accuracy`,
    missed in `recall` and `f1` where gold is 1, and left out of `selective_accuracy`, `kappa` and `alpha`.

    `wilson` has an interval for each share that is defined (it takes pairs for independent), `bootstrap` one over
    queries for each measure: None where resampling tells nothing (`ClusterBootstrap.percentiles`).

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
    predicted: Mapping[str, int | None],
    gold: Mapping[str, int],
    queries: Mapping[str, str],
    *,
    seed: int = 0,
    resamples: int = 2000,
    level: float = 0.95,
) -> Scores:
    """Compare labels (0, 1 or None) with gold (0 or 1), both by id; `queries` tells which pairs belong together.

    Raises:
        ValueError: a label that is neither 0 nor 1, no resample, or a level outside 0 to 1.
        ExtraMissing: NumPy or SciPy is not installed.
    """
    ids = [pair for pair in gold if pair in predicted]
    cells = [cell(predicted[pair], gold[pair]) for pair in ids]
    resampling = ClusterBootstrap(cluster_names(ids, queries), seed=seed, resamples=resamples, level=level)
    confusion = Confusion(**Counter(cells))
    return Scores(
        pairs=confusion.pairs,
        labelled=confusion.labelled,
        confusion=confusion,
        **measures(confusion),
        wilson=wilson_intervals(confusion, level),
        bootstrap=_bootstrap(cells, resampling),
        queries=resampling.clusters,
        without_query=sum(pair not in queries for pair in ids),
        gold_only=len(gold) - len(ids),
        predicted_only=sum(pair not in gold for pair in predicted),
        seed=seed,
        resamples=resamples,
        level=level,
    )


def cluster_names(ids: Iterable[str], queries: Mapping[str, str]) -> list[str]:
    """Return the cluster of each pair: its query, or the pair alone where that is not known."""
    # two kinds of names that cannot meet, so that an id which is also a query's text joins no cluster
    return [f"query {queries[pair]}" if pair in queries else f"pair {pair}" for pair in ids]


def _bootstrap(cells: list[str], resampling: ClusterBootstrap) -> dict[str, Interval | None]:
    if not cells:
        return dict.fromkeys(FORMULAS)
    sums = resampling.sums([[int(name == each) for name in CELLS] for each in cells])
    counts = Confusion(**{name: sums[:, column] for column, name in enumerate(CELLS)})
    return {name: resampling.percentiles(formula(counts)) for name, formula in FORMULAS.items()}


class Group(Frozen):
    """The pairs of a group; `accuracy` counts null as wrong, `interval` is its Wilson interval."""

    name: str
    pairs: int
    confusion: Confusion
    accuracy: float
    interval: Interval


class Breakdown(Frozen):
    """A run's pairs that have gold, grouped in several ways; each way holds every pair but `overrides`.

    `tests` tells a pass that proves nothing from the others. `overrides` are the labels beside a test that says 0 or 1:
    `passed, but 0` and `failed, but 1` go against it, `followed` agree with it.
    """

    decided_by: tuple[Group, ...]
    tests: tuple[Group, ...]
    stand_ins: tuple[Group, ...]
    overrides: tuple[Group, ...]


def break_down(decisions: Mapping[str, Decision], gold: Mapping[str, int], *, level: float = 0.95) -> Breakdown:
    """Group the pairs that have gold; the largest group first.

    Raises:
        ExtraMissing: SciPy is not installed.
    """
    judged = [(decision, gold[pair]) for pair, decision in decisions.items() if pair in gold]

    def by(name_of: Callable[[Decision], str | None]) -> tuple[Group, ...]:
        groups: dict[str, Counter[str]] = {}
        for decision, label in judged:
            name = name_of(decision)
            if name is not None:
                groups.setdefault(name, Counter())[cell(decision.label, label)] += 1
        found = [_group(name, Confusion(**cells), level) for name, cells in groups.items()]
        return tuple(sorted(found, key=lambda group: (-group.pairs, group.name)))

    return Breakdown(decided_by=by(_decider), tests=by(_test), stand_ins=by(_stand_ins), overrides=by(_override))


def _group(name: str, confusion: Confusion, level: float) -> Group:
    right = confusion.tp + confusion.tn
    return Group(
        name=name,
        pairs=confusion.pairs,
        confusion=confusion,
        accuracy=right / confusion.pairs,
        interval=wilson(right, confusion.pairs, level),
    )


def _decider(decision: Decision) -> str:
    if decision.error is not None:
        return f"error: {decision.error}"
    return "nobody" if decision.decided_by is None else decision.decided_by


def _test(decision: Decision) -> str:
    if decision.outcome is None:
        return "no test"
    return decision.outcome if decision.cause is None else f"{decision.outcome}: {decision.cause}"


def _stand_ins(decision: Decision) -> str:
    if decision.outcome is None:
        return "no test"
    return "stand-ins" if decision.stand_ins else "no stand-ins"


def _override(decision: Decision) -> str | None:
    """Return how the label stands to the test; None where there is no label, or no test that says one."""
    if None in (decision.label, decision.says):
        return None
    return "followed" if decision.label == decision.says else f"{decision.outcome}, but {decision.label}"
