"""What was done to make programs run, and what was invented around the snippets."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from agent.history import Command
from agent.views.charts import Block, Segment, bars, block, stacked, table
from agent.views.figures.base import LABEL_COLOURS, Seen, share
from agent.wording import counted

_MOST_NAMES = 15
_OUTCOME_COLOURS = {"installed": "good", "ran": "accent", "failed": "bad", "refused": "muted", "changed": "accent-2"}


class Repairs:
    """Repairs by kind, and what came of them."""

    def __init__(self) -> None:
        self.repairs = 0
        self._pairs: set[str] = set()
        self._kinds: dict[str, Counter[str]] = {}

    def add(self, seen: Seen) -> None:
        """Take in one annotation."""
        self.repairs += seen.annotation.repairs
        if seen.annotation.repairs:
            self._pairs.add(seen.annotation.id)
        if seen.evidence is None:
            return
        for run in seen.evidence.commands:
            self._kinds.setdefault(_kind(run), Counter())[run.outcome] += 1
        changed = sum(before.program != after.program for before, after in pairwise(seen.evidence.tests))
        if changed:
            self._kinds.setdefault("program written again", Counter())["changed"] += changed

    def blocks(self) -> list[Block]:
        """Return repairs by kind and outcome."""
        if not self._kinds:
            return []
        kinds = sorted(self._kinds, key=lambda kind: -self._kinds[kind].total())
        outcomes = [name for name in _OUTCOME_COLOURS if any(self._kinds[kind][name] for kind in kinds)]
        rows = [
            (kind, [Segment(name, self._kinds[kind][name], _OUTCOME_COLOURS[name], f"{self._kinds[kind][name]:,}")
                    for name in outcomes])
            for kind in kinds
        ]  # fmt: skip
        cells = [[kind, *(f"{self._kinds[kind][name]:,}" for name in outcomes)] for kind in kinds]
        return [
            block(
                "Repairs by kind",
                f"{counted(self.repairs, 'repair')} on {counted(len(self._pairs), 'pair')} led to another execution. "
                "A refused command was answered, not run.",
                stacked(rows, alt="Repairs by kind and outcome.", unit="repairs tried", legend=True),
                [table({"kind": False, **dict.fromkeys(outcomes, True)}, cells)],
            )
        ]


class StandIns:
    """What programs invented around the snippets."""

    def __init__(self) -> None:
        self.pairs = 0
        self._names: Counter[str] = Counter()
        self._labels: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}

    def add(self, seen: Seen) -> None:
        """Take in one annotation."""
        if not seen.generated:
            return
        used = seen.annotation.stand_ins
        self.pairs += bool(used)
        # The name alone: what it stands for is told behind a colon.
        self._names.update({each.partition(":")[0].strip() for each in used})
        self._labels[bool(used)][seen.label] += 1

    def blocks(self) -> list[Block]:
        """Return the most frequent stand-ins, and labels with and without any."""
        if not self._names:
            return []
        programs = sum(counts.total() for counts in self._labels.values())
        found = self._names.most_common(_MOST_NAMES)
        labels = [
            ["with stand-ins" if used else "without", *(f"{self._labels[used][name]:,}" for name in LABEL_COLOURS)]
            for used in (True, False)
        ]
        left = len(self._names) - len(found)
        rest = f" The {len(found)} most frequent of {len(self._names):,} names are shown." if left else ""
        return [
            block(
                "Stand-ins",
                f"{self.pairs:,} of {programs:,} programs ({share(self.pairs, programs)}) invented something around "
                f"the snippet.{rest}",
                bars(
                    [(name, count, f"{count:,}") for name, count in found],
                    alt="The most frequent stand-ins.", unit="programs", colour="accent-2",
                ),
                [
                    table({"programs": False, **dict.fromkeys(LABEL_COLOURS, True)}, labels),
                    table({"stand-in": False, "programs": True}, [[name, f"{count:,}"] for name, count in found]),
                ],
            )
        ]  # fmt: skip


def _kind(run: Command) -> str:
    words = run.command.split()
    return "packages installed" if "install" in words and "pip" in " ".join(words[:4]) else "other commands"
