"""What the test programs showed: outcomes and causes, whether they ran, and how labels go with them."""

from __future__ import annotations

from collections import Counter
from statistics import fmean

from agent.types import Cause
from agent.views.charts import Block, Segment, block, stacked, table
from agent.views.figures.base import LABEL_COLOURS, OUTCOME_COLOURS, Seen, share
from agent.wording import counted

_CAUSE_COLOURS = {
    "snippet": "bad", "program": "warn", "dependency": "accent-2", "sandbox": "error", "flaky": "muted", "": "good",
    "proves nothing": "accent",
}  # fmt: skip
_OURS = (Cause.PROGRAM, Cause.DEPENDENCY)


class Outcomes:
    """How the last execution of each pair ended, and who failed."""

    def __init__(self) -> None:
        self._causes: dict[str, Counter[str]] = {}
        self._labels: dict[str, Counter[str]] = {}
        self._against = 0

    def add(self, seen: Seen) -> None:
        """Take in one annotation."""
        test = seen.annotation.test
        if test is None:
            return
        cause = "proves nothing" if test.vacuous else "" if test.cause is None else test.cause.value
        self._causes.setdefault(test.status.value, Counter())[cause] += 1
        self._labels.setdefault(test.outcome, Counter())[seen.label] += 1
        self._against += seen.annotation.against_test

    def blocks(self) -> list[Block]:
        """Return outcomes by cause, and labels by outcome."""
        if not self._causes:
            return []
        return [self._by_cause(), self._by_label()]

    def _by_cause(self) -> Block:
        names = _ordered(self._causes)
        rows = [
            (name, [Segment(cause or "no failure", count, _CAUSE_COLOURS[cause], f"{count:,}")
                    for cause, count in self._causes[name].most_common()])
            for name in names
        ]  # fmt: skip
        cells = [
            [name, cause or "–", f"{count:,}"] for name in names for cause, count in self._causes[name].most_common()
        ]
        return block(
            "Outcomes and causes",
            "Only failures of the snippet speak of it. A program or a dependency that failed was repaired first. A "
            "pass proves nothing when wrong code in the snippet's place passed too, or at most crashed.",
            stacked(rows, alt="Test outcomes by cause.", unit="pairs with a test", legend=True),
            [table({"outcome": False, "cause": False, "pairs": True}, cells)],
        )

    def _by_label(self) -> Block:
        names = _ordered(self._labels)
        rows = [
            (name, [Segment(label, self._labels[name][label], colour, f"{self._labels[name][label]:,}")
                    for label, colour in LABEL_COLOURS.items()])
            for name in names
        ]  # fmt: skip
        cells = [[name, *(f"{self._labels[name][label]:,}" for label in LABEL_COLOURS)] for name in names]
        against = {0: "No label goes against its", 1: "1 label goes against its"}.get(
            self._against, f"{self._against:,} labels go against their"
        )
        return block(
            "Labels by test outcome",
            f"{against} test. The arbiter may rule that a test does not decide a pair. Tests that failed, or passed "
            "and prove something, speak for a label; others for none.",
            stacked(rows, alt="Labels by test outcome.", unit="pairs with a test", legend=True),
            [table({"outcome": False, **dict.fromkeys(LABEL_COLOURS, True)}, cells)],
        )


class Executed:
    """How many of the programs ran as tests: at once, after repairs, or not at all."""

    def __init__(self) -> None:
        self.programs = 0
        self.executed = 0
        self.cases = 0
        self._ways: Counter[str] = Counter()
        self._untold = 0

    def add(self, seen: Seen) -> None:
        """Take in one annotation."""
        test = seen.annotation.test
        if test is None or not test.cases:
            return
        self.programs += 1
        self.executed += test.executed
        self.cases += len(test.cases)
        if seen.evidence is None or not seen.evidence.tests:
            self._untold += 1
            return
        first = seen.evidence.tests[0].report
        if test.executed:
            self._ways["ran after repairs" if first.cause in _OURS else "ran at once"] += 1
        else:
            self._ways[f"did not run: {'no test' if test.cause is None else test.cause.value}"] += 1

    def blocks(self) -> list[Block]:
        """Return the ways in which programs came to run."""
        if not self.programs:
            return []
        colours = {"ran at once": "accent", "ran after repairs": "good"}
        names = [*colours, *sorted(name for name in self._ways if name not in colours)]
        rows = [
            (name, [Segment("", self._ways[name], colours.get(name, "warn"), f"{self._ways[name]:,}")])
            for name in names
        ]
        untold = f" Of {self._untold:,} programs no evidence is kept." if self._untold else ""
        ran = f"{self.executed:,} of {self.programs:,} programs ran as tests ({share(self.executed, self.programs)})"
        return [
            block(
                "Programs that ran",
                f"{ran}, {self.cases / self.programs:.1f} cases each.{untold}",
                stacked(rows, alt="Programs by whether they ran.", unit="programs"),
                [
                    table(
                        {"program": False, "count": True, "of all programs": True},
                        [[name, f"{self._ways[name]:,}", share(self._ways[name], self.programs)] for name in names],
                    )
                ],
            )
        ]


class Mutants:
    """What the programs noticed when something that cannot be right took the snippet's place."""

    def __init__(self) -> None:
        self._killed: Counter[str] = Counter()
        self._tried: Counter[str] = Counter()
        self._strengths: list[float] = []
        self._vacuous = 0

    def add(self, seen: Seen) -> None:
        """Take in one annotation."""
        test, strength = seen.annotation.test, seen.annotation.strength
        if strength is not None:
            self._strengths.append(strength)
        self._vacuous += test is not None and test.vacuous
        for tried in () if seen.evidence is None else seen.evidence.mutants:
            if tried.mutant is not None:
                self._tried[tried.mutant.kind] += 1
                self._killed[tried.mutant.kind] += tried.killed

    def blocks(self) -> list[Block]:
        """Return the mutants that were noticed and missed, by kind."""
        if not self._tried:
            return []
        kinds = sorted(self._tried, key=lambda kind: (-self._tried[kind], kind))
        rows = [
            (kind, [Segment("noticed", self._killed[kind], "good", f"{self._killed[kind]:,}"),
                    Segment("missed", self._tried[kind] - self._killed[kind], "bad",
                            f"{self._tried[kind] - self._killed[kind]:,}")])
            for kind in kinds
        ]  # fmt: skip
        cells = [
            [kind, f"{self._tried[kind]:,}", f"{self._killed[kind]:,}", share(self._killed[kind], self._tried[kind])]
            for kind in kinds
        ]
        return [
            block(
                "Strength of the programs",
                "Mutants were put in the snippet's place for "
                f"{counted(len(self._strengths), 'program')}; the mean share that a program noticed is "
                f"{fmean(self._strengths or [0]):.2f}. Of {counted(self._vacuous, 'program')} it was nothing but "
                "crashes: they prove nothing.",
                stacked(rows, alt="Mutants noticed and missed, by kind.", unit="mutants", legend=True),
                [table({"kind": False, "tried": True, "noticed": True, "share": True}, cells)],
            )
        ]


def _ordered(counts: dict[str, Counter[str]]) -> list[str]:
    return [name for name in OUTCOME_COLOURS if name in counts]
