"""The closing summary of a run, as a table to read and as JSON to parse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from functools import partial
from typing import Any

from pydantic import BaseModel
from rich.table import Table
from rich.text import Text

from agent.cli.text import one_line
from agent.evaluation.agreement import mean_agreement, rounds_alpha
from agent.store.majority import Votes
from agent.types import Annotation, Status, TestReport, Usage
from agent.wording import counted


class Summary(BaseModel):
    """What a run amounts to. Shares are of 1; `seconds` adds up the pairs' own times.

    `labels` counts pairs by the majority of their rounds; `pairs_repaired` and `pairs_with_stand_ins` those of which
    any round was so. Whatever else follows counts annotations, one per pair and round. `agreement` is the mean share
    of two rounds of a pair that ended alike, `rounds_alpha` Krippendorff's alpha between rounds; the first is
    None where no pair has two. Of the tests that passed, `tests_checked` were tried on wrong code, with a mean
    `strength`, and `tests_vacuous` prove nothing.
    """

    pairs: int = 0
    rounds: int = 1
    annotations: int = 0
    agreement: float | None = None
    rounds_alpha: float | None = None
    labels: dict[str, int] = {}
    undecided: int = 0
    errors: dict[str, int] = {}
    decided_by: dict[str, int] = {}
    statuses: dict[str, int] = {}
    causes: dict[str, int] = {}
    tests_checked: int = 0
    tests_vacuous: int = 0
    mean_strength: float | None = None
    programs: int = 0
    programs_executed: int = 0
    cases_per_program: float | None = None
    repairs: int = 0
    pairs_repaired: int = 0
    stand_ins: int = 0
    pairs_with_stand_ins: int = 0
    usage: Usage = Usage()
    seconds: float = 0.0

    @property
    def executed_share(self) -> float | None:
        """Return the share of programs that ran as tests (the paper's "Exec. rate")."""
        return self.programs_executed / self.programs if self.programs else None


class Tally:
    """Counts annotations one by one; of each it holds the label alone."""

    def __init__(self) -> None:
        self._votes = Votes()
        self._names: dict[str, Counter[str]] = {
            name: Counter() for name in ("errors", "decided_by", "statuses", "causes")
        }
        self._numbers: Counter[str] = Counter()
        self._pairs: dict[str, set[str]] = {"pairs_repaired": set(), "pairs_with_stand_ins": set()}
        self._strength = 0.0
        self._usage = Usage()
        self._seconds = 0.0

    def add(self, annotation: Annotation) -> None:
        """Count one annotation."""
        numbers = self._numbers
        self._votes.add(annotation)
        if annotation.error is not None:
            self._names["errors"][annotation.error.type] += 1
        elif annotation.decided_by is not None:
            self._names["decided_by"][annotation.decided_by] += 1
        if annotation.test is not None:
            self._add_test(annotation.test)
        if annotation.strength is not None:
            numbers["tests_checked"] += 1
            self._strength += annotation.strength
        numbers["annotations"] += 1
        numbers["repairs"] += annotation.repairs
        numbers["stand_ins"] += len(annotation.stand_ins)
        if annotation.repairs:
            self._pairs["pairs_repaired"].add(annotation.id)
        if annotation.stand_ins:
            self._pairs["pairs_with_stand_ins"].add(annotation.id)
        self._usage += annotation.usage
        self._seconds += annotation.seconds

    def _add_test(self, test: TestReport) -> None:
        self._names["statuses"][test.status.value] += 1
        self._numbers["tests_vacuous"] += test.vacuous
        if test.cause is not None:
            self._names["causes"][f"{test.status.value}: {test.cause.value}"] += 1
        if test.cases:
            self._numbers["programs"] += 1
            self._numbers["cases"] += len(test.cases)
            self._numbers["programs_executed"] += test.executed

    def summary(self) -> Summary:
        """Return the counts so far."""
        programs, checked = self._numbers["programs"], self._numbers["tests_checked"]
        pairs = self._votes.labels()
        labels = Counter({"1": 0, "0": 0, "null": 0})
        labels.update("null" if pair.label is None else str(pair.label) for pair in pairs)
        counted: dict[str, Any] = {name: count for name, count in self._numbers.items() if name != "cases"}
        named = {name: dict(counter.most_common()) for name, counter in self._names.items()}
        return Summary.model_validate(
            {
                **counted,
                **named,
                **{name: len(ids) for name, ids in self._pairs.items()},
                "pairs": len(pairs),
                "rounds": max(self._votes.rounds, 1),
                "agreement": mean_agreement(pairs),
                "rounds_alpha": rounds_alpha(pairs),
                "labels": dict(labels),
                "undecided": sum(pair.undecided for pair in pairs),
                "mean_strength": round(self._strength / checked, 4) if checked else None,
                "cases_per_program": round(self._numbers["cases"] / programs, 2) if programs else None,
                "usage": self._usage,
                "seconds": round(self._seconds, 1),
            }
        )


def as_table(
    summary: Summary,
    wall_seconds: float | None = None,
    *,
    kept: Set[tuple[str, int]] = frozenset(),
    spent_usd: float | None = None,
    elsewhere: Mapping[str, int] | None = None,
) -> Table:
    """Return the summary as rows of name and value.

    `kept` are the pairs and rounds of its folder, `spent_usd` is what the folder cost; both may be more. `elsewhere`
    counts replies from servers other than those asked last, by address.
    """
    table = Table.grid(padding=(0, 2))
    row = partial(_add, table)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    labels, several = summary.labels, summary.rounds > 1
    row("pairs", _pairs(summary, kept))
    by_majority = " by majority" * several
    row("labels", f"{labels['1']} match · {labels['0']} no match · {summary.undecided} undecided{by_majority}")
    if summary.agreement is not None:
        alpha = "undefined" if summary.rounds_alpha is None else f"{summary.rounds_alpha:.3f}"
        row("agreement", f"two rounds end alike in {summary.agreement:.1%} of cases · Krippendorff's alpha {alpha}")
    if summary.errors:
        row("errors", _listed(summary.errors))
    row("decided by", _listed(summary.decided_by) or "nobody")
    if summary.statuses:
        row("tests", _tests(summary))
    if summary.mean_strength is not None:
        row("strength", f"{summary.mean_strength:.2f} on average, of {summary.tests_checked} tests tried on wrong code")
    if summary.causes:
        row("causes", _listed(summary.causes))
    if summary.programs:
        row(
            "programs",
            f"{summary.programs_executed} of {summary.programs} ran ({summary.executed_share:.1%}), "
            f"{summary.cases_per_program} cases each",
        )
        row("repairs", f"{summary.repairs} on {counted(summary.pairs_repaired, 'pair')}")
        row("stand-ins", f"{summary.stand_ins} on {counted(summary.pairs_with_stand_ins, 'pair')}")
    row("model", _spent(summary.usage))
    if _more_was_spent(summary.usage.cost_usd, spent_usd):
        row("folder", f"{money(spent_usd)} paid in all its starts, for other and unfinished pairs and other tries too")
    if elsewhere:
        row(
            "servers",
            f"{counted(sum(elsewhere.values()), 'reply', 'replies')} came from another address: {_listed(elsewhere)}",
        )
    if wall_seconds is not None and wall_seconds > 0:
        row("time", f"{wall_seconds:.1f} s")
    return table


def _pairs(summary: Summary, kept: Set[tuple[str, int]]) -> str:
    pairs = len({pair for pair, _ in kept})
    told = f"{summary.pairs} of {pairs}" if pairs > summary.pairs else f"{summary.pairs}"
    more = len(kept) > summary.annotations
    if summary.rounds > 1 or len(kept) > pairs:
        of = f"{summary.annotations} of {len(kept)} annotations" if more else counted(summary.annotations, "annotation")
        told += f", {counted(summary.rounds, 'round')}: {of}"
    return f"{told} in the folder" if more else told


def _add(table: Table, name: str, value: str) -> None:
    table.add_row(name, Text(value))


def as_json(summary: Summary, **more: Any) -> dict[str, Any]:
    """Return the summary for programs."""
    return {**summary.model_dump(mode="json"), "executed_share": summary.executed_share, **more}


def money(cost: float | None) -> str:
    """Return a cost in US dollars; unknown stays unknown."""
    return "cost unknown" if cost is None else f"${cost:.4f}"


def _more_was_spent(counted_usd: float | None, spent_usd: float | None) -> bool:
    return counted_usd is not None and spent_usd is not None and money(spent_usd) != money(counted_usd)


def _spent(usage: Usage) -> str:
    tokens = f"{usage.input_tokens:,} tokens in ({usage.cached_input_tokens:,} cached), {usage.output_tokens:,} out"
    return f"{counted(usage.calls, 'call')} paid · {tokens} · {money(usage.cost_usd)}"


def _tests(summary: Summary) -> str:
    vacuous = summary.tests_vacuous
    passed = f"passed, of these {vacuous} {'proves' if vacuous == 1 else 'prove'} nothing"
    told = {Status.PASSED.value: passed} if vacuous else {}
    return _listed({told.get(name, name): count for name, count in summary.statuses.items()})


def _listed(counts: Mapping[str, int]) -> str:
    return " · ".join(f"{count} {one_line(name, 60)}" for name, count in counts.items())
