"""What every figure has: it looks at each annotation once, and then says what it saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from agent.report.charts import Block
from agent.types import PROVES_NOTHING, Annotation, Evidence

LABEL_COLOURS: Mapping[str, str] = {"1": "good", "0": "bad", "undecided": "muted", "error": "error"}
OUTCOME_COLOURS: Mapping[str, str] = {
    "passed": "good", PROVES_NOTHING: "accent", "failed": "bad", "error": "warn", "timeout": "accent-2",
    "not_run": "muted",
}  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """One annotation, what led to it (None: not kept), and the label that people gave (None: not known)."""

    annotation: Annotation
    evidence: Evidence | None = None
    gold: int | None = None

    @property
    def label(self) -> str:
        """`1`, `0`, `undecided` or `error`."""
        if self.annotation.error is not None:
            return "error"
        return "undecided" if self.annotation.label is None else str(self.annotation.label)

    @property
    def generated(self) -> bool:
        """Whether a test program was written."""
        if self.evidence is not None:
            return self.evidence.template is not None
        return self.annotation.test is not None and bool(self.annotation.test.cases)


class Figure(Protocol):
    """Something of a run to show."""

    def add(self, seen: Seen) -> None:
        """Take in one annotation."""
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
