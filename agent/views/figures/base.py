"""What every figure has: it looks at each annotation once, and then says what it saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from agent.history import History
from agent.store.majority import Ended, Votes, ended, standing_for
from agent.types import PROVES_NOTHING, Annotation
from agent.views.charts import Block

LABEL_COLOURS: Mapping[str, str] = {"1": "good", "0": "bad", "undecided": "muted", "error": "error"}
OUTCOME_COLOURS: Mapping[str, str] = {
    "passed": "good", PROVES_NOTHING: "accent", "failed": "bad", "error": "warn", "timeout": "accent-2",
    "not_run": "muted",
}  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """One annotation, what led to it (None: not kept), and the label that people gave (None: not known)."""

    annotation: Annotation
    evidence: History | None = None
    gold: int | None = None

    @property
    def label(self) -> Ended:
        """`1`, `0`, `undecided` or `error`."""
        return ended(self.annotation.label, failed=self.annotation.error is not None)

    @property
    def generated(self) -> bool:
        """Whether a test program was written."""
        if self.evidence is not None:
            return bool(self.evidence.programs)
        return self.annotation.test is not None and bool(self.annotation.test.cases)


def as_one(rounds: Sequence[Seen]) -> Seen:
    """Return a pair, seen in one or more rounds, as one annotation that has the label and confidence of their majority.

    The rest is that of the first round that ended so. A tie is undecided, on what the first round without error found.
    """
    if len(rounds) == 1:
        return rounds[0]
    votes = Votes()
    for seen in rounds:
        votes.add(seen.annotation)
    (label,) = votes.labels()
    place = standing_for([seen.label for seen in rounds])
    if place is not None:
        found, changes = rounds[place], {"confidence": label.confidence}
    else:
        found = next(seen for seen in rounds if seen.annotation.error is None)
        changes = {"confidence": None, "label": None, "decided_by": None}
    return replace(found, annotation=found.annotation.model_copy(update=changes))


class Figure(Protocol):
    """Something of a run to show."""

    def add(self, seen: Seen) -> None:
        """Take in one annotation; where the figure counts pairs, a pair `as_one`."""
        ...

    def blocks(self) -> list[Block]:
        """Return what there is to show; nothing when nothing was seen."""
        ...


def share(part: float, whole: float) -> str:
    """Return a share in percent; a dash for a share of nothing."""
    return f"{part / whole:.1%}" if whole else "–"


def money(cost: float | None) -> str:
    """Return a cost in US dollars; unknown stays unknown."""
    if cost is None:
        return "unknown"
    return "$0" if cost == 0 else f"${cost:,.4f}" if cost < 100 else f"${cost:,.2f}"


def duration(seconds: float) -> str:
    """Return a time to read, as in `4.2 s` or `3 h 05 min`."""
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"
