"""The closing summary of a run, as a table to read and as JSON to parse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from rich.table import Table

from agent.types import Annotation, Usage


class Summary(BaseModel):
    """What a run amounts to. Shares are of 1; `seconds` adds up the pairs' own times."""

    pairs: int = 0
    labels: dict[str, int] = {}
    errors: dict[str, int] = {}
    decided_by: dict[str, int] = {}
    statuses: dict[str, int] = {}
    causes: dict[str, int] = {}
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


def summarise(annotations: Iterable[Annotation]) -> Summary:
    """Count what the annotations say."""
    labels: Counter[str] = Counter({"1": 0, "0": 0, "null": 0})
    counts: dict[str, Counter[str]] = {
        "errors": Counter(),
        "decided_by": Counter(),
        "statuses": Counter(),
        "causes": Counter(),
    }
    numbers: Counter[str] = Counter()
    usage, seconds = Usage(), 0.0
    for annotation in annotations:
        numbers["pairs"] += 1
        labels["null" if annotation.label is None else str(annotation.label)] += 1
        if annotation.error is not None:
            counts["errors"][annotation.error.type] += 1
        elif annotation.decided_by is not None:
            counts["decided_by"][annotation.decided_by] += 1
        if annotation.test is not None:
            _count_test(annotation, counts, numbers)
        numbers["repairs"] += annotation.repairs
        numbers["pairs_repaired"] += annotation.repairs > 0
        numbers["stand_ins"] += len(annotation.stand_ins)
        numbers["pairs_with_stand_ins"] += bool(annotation.stand_ins)
        usage += annotation.usage
        seconds += annotation.seconds
    cases, programs = numbers.pop("cases", 0), numbers["programs"]
    return Summary(
        **numbers,
        labels=dict(labels),
        **{name: dict(counter.most_common()) for name, counter in counts.items()},
        cases_per_program=round(cases / programs, 2) if programs else None,
        usage=usage,
        seconds=round(seconds, 1),
    )


def _count_test(annotation: Annotation, counts: dict[str, Counter[str]], numbers: Counter[str]) -> None:
    test = annotation.test
    assert test is not None
    counts["statuses"][test.status.value] += 1
    if test.cause is not None:
        counts["causes"][f"{test.status.value}: {test.cause.value}"] += 1
    if test.cases:
        numbers["programs"] += 1
        numbers["cases"] += len(test.cases)
        numbers["programs_executed"] += test.executed


def as_table(summary: Summary, wall_seconds: float | None = None) -> Table:
    """Return the summary as rows of name and value."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    labels = summary.labels
    undecided = labels["null"] - sum(summary.errors.values())
    table.add_row("pairs", f"{summary.pairs}")
    table.add_row("labels", f"{labels['1']} match · {labels['0']} no match · {undecided} undecided")
    if summary.errors:
        table.add_row("errors", _listed(summary.errors))
    table.add_row("decided by", _listed(summary.decided_by) or "nobody")
    if summary.statuses:
        table.add_row("tests", _listed(summary.statuses))
    if summary.causes:
        table.add_row("causes", _listed(summary.causes))
    if summary.programs:
        table.add_row(
            "programs",
            f"{summary.programs_executed} of {summary.programs} ran ({summary.executed_share:.1%}), "
            f"{summary.cases_per_program} cases each",
        )
        table.add_row("repairs", f"{summary.repairs} on {summary.pairs_repaired} pairs")
        table.add_row("stand-ins", f"{summary.stand_ins} on {summary.pairs_with_stand_ins} pairs")
    table.add_row("model", _spent(summary.usage))
    if wall_seconds is not None and wall_seconds > 0:
        table.add_row("time", f"{wall_seconds:.1f} s")
    return table


def as_json(summary: Summary, **more: Any) -> dict[str, Any]:
    """Return the summary for programs."""
    return {**summary.model_dump(mode="json"), "executed_share": summary.executed_share, **more}


def money(cost: float | None) -> str:
    """Return a cost in US dollars; unknown stays unknown."""
    return "cost unknown" if cost is None else f"${cost:.4f}"


def _spent(usage: Usage) -> str:
    tokens = f"{usage.input_tokens:,} tokens in ({usage.cached_input_tokens:,} cached), {usage.output_tokens:,} out"
    return f"{usage.calls} calls paid · {tokens} · {money(usage.cost_usd)}"


def _listed(counts: dict[str, int]) -> str:
    return " · ".join(f"{count} {name}" for name, count in counts.items())
