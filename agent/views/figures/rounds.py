"""Several rounds of the same pairs: how far they agree, and what their majority says."""

from __future__ import annotations

from collections import Counter

from agent.evaluation.agreement import mean_agreement, rounds_alpha
from agent.store.majority import Votes
from agent.views.charts import Block, Segment, block, stacked, table
from agent.views.figures.base import LABEL_COLOURS, Seen


class Rounds:
    """Labels by round and of the majority; nothing for a single round."""

    def __init__(self) -> None:
        self._votes = Votes()
        self._labels: dict[str, Counter[str]] = {}

    def add(self, seen: Seen) -> None:
        """Take in one annotation."""
        self._votes.add(seen.annotation)
        self._labels.setdefault(f"round {seen.annotation.round}", Counter())[seen.label] += 1

    def blocks(self) -> list[Block]:
        """Return labels by round and of the majority."""
        if self._votes.rounds < 2:
            return []
        labels = self._votes.labels()
        counts = {**self._labels, "majority": Counter[str](each.ended for each in labels)}
        rows = [
            (name, [Segment(label, found[label], colour, f"{found[label]:,}")
                    for label, colour in LABEL_COLOURS.items()])
            for name, found in counts.items()
        ]  # fmt: skip
        cells = [[name, *(f"{found[label]:,}" for label in LABEL_COLOURS)] for name, found in counts.items()]
        alike = mean_agreement(labels)
        text = "" if alike is None else f"Two rounds of a pair ended alike in {alike:.1%} of the cases. "
        alpha = rounds_alpha(labels)
        text += "" if alpha is None else f"Krippendorff's alpha between rounds is {alpha:.3f}. "
        return [
            block(
                "Rounds",
                text
                + "Figures of labels, test outcomes and confidence count a pair once: as the first of its rounds that "
                "ended as their majority. Programs, repairs, stand-ins, errors, cost and time are those of all rounds, "
                "and the pairs are listed once for each.",
                stacked(rows, alt="Labels by round.", unit="pairs", legend=True),
                [table({"round": False, **dict.fromkeys(LABEL_COLOURS, True)}, cells)],
            )
        ]
