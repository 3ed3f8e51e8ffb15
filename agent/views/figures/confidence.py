"""How sure the labels are."""

from __future__ import annotations

from collections import Counter

from agent.evaluation.calibration import bin_name, bin_of
from agent.views.charts import Block, Segment, block, stacked, table
from agent.views.figures.base import LABEL_COLOURS, Seen


class Confidence:
    """The distribution of confidence, by label."""

    def __init__(self) -> None:
        self._bins: dict[int, Counter[str]] = {}
        self._without = 0
        self._judged = 0

    def add(self, seen: Seen) -> None:
        """Take in one annotation."""
        confidence = seen.annotation.confidence
        if confidence is None:
            self._without += seen.label in ("0", "1")
            return
        self._judged += seen.gold is not None
        self._bins.setdefault(bin_of(confidence), Counter())[seen.label] += 1

    def blocks(self) -> list[Block]:
        """Return the number of labels by confidence, the surest on top."""
        if not self._bins:
            return []
        numbers = range(max(self._bins), min(self._bins) - 1, -1)
        names = {number: bin_name(number) for number in numbers}
        counts = {number: self._bins.get(number, Counter()) for number in numbers}
        rows = [
            (names[number], [Segment(label, counts[number][label], colour, f"{counts[number][label]:,}")
                             for label, colour in LABEL_COLOURS.items()])
            for number in numbers
        ]  # fmt: skip
        cells = [[names[number], *(f"{counts[number][label]:,}" for label in LABEL_COLOURS)] for number in numbers]
        text = f"{self._without:,} labels have no confidence. " if self._without else ""
        if self._judged:
            text += f"Calibration says whether it can be believed, by {self._judged:,} that people labelled, too."
        else:
            text += "Whether it can be believed is known only where people labelled the same pairs (--gold)."
        return [
            block(
                "Confidence",
                text,
                stacked(rows, alt="Labels by confidence.", unit="labels", legend=True),
                [table({"confidence": False, **dict.fromkeys(LABEL_COLOURS, True)}, cells)],
            )
        ]
