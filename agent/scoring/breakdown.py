"""Where a run is right and wrong: by what decided, what the test showed, and whether the label follows the test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from agent.scoring.measures import Confusion, cell
from agent.scoring.run_labels import Decision
from agent.stats.intervals import Interval, wilson
from agent.types import Frozen


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
