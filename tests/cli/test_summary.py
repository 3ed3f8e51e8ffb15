"""The summary of a run aggregates its annotations."""

from __future__ import annotations

import io
import re

import pytest

from agent.cli.summary import as_json, as_table, format_cost
from agent.cli.text import Console
from agent.evaluation.tally import Observation, Tally
from agent.types import Annotation, CaseOutcome, CaseResult, Cause, ErrorInfo, Status, TestReport, Usage


def make_annotation(number: int, **fields: object) -> Annotation:
    return Annotation.model_validate({"id": str(number), "input_sha256": "0" * 64, **fields})


def make_report(status: Status, cause: Cause | None, *outcomes: CaseOutcome) -> TestReport:
    cases = tuple(CaseResult(name=f"test_{n}", outcome=outcome) for n, outcome in enumerate(outcomes))
    return TestReport(status=status, cause=cause, cases=cases)


def print_summary(summary: Tally, spent_usd: float | None = None) -> str:
    shown = io.StringIO()
    Console(file=shown, width=120).print(as_table(summary, 4.0, spent_usd=spent_usd))
    return shown.getvalue()


@pytest.fixture(scope="module")
def summary() -> Tally:
    usage = Usage(calls=2, input_tokens=100, cached_input_tokens=40, output_tokens=10, cost_usd=0.25)
    tally = Tally()
    passed = make_report(Status.PASSED, None, CaseOutcome.PASSED, CaseOutcome.PASSED, CaseOutcome.PASSED)
    failed = make_report(Status.ERROR, Cause.DEPENDENCY, CaseOutcome.NOT_RUN)
    tally.add(Observation(make_annotation(1, label=1, decided_by="screen", usage=usage, seconds=1.5)))
    tally.add(
        Observation(
            make_annotation(2, label=1, decided_by="arbitrate", test=passed, stand_ins=("Db", "Net"), usage=usage)
        )
    )
    tally.add(Observation(make_annotation(3, label=0, decided_by="arbitrate", test=failed, repairs=2, seconds=0.5)))
    tally.add(Observation(make_annotation(4, decided_by="arbitrate")))
    tally.add(Observation(make_annotation(5, error=ErrorInfo(type="ModelTimeout", message="late"), usage=usage)))
    return tally


def test_hostile_names_are_escaped() -> None:
    tally = Tally()
    tally.add(Observation(make_annotation(1, label=1, decided_by="\x1b]0;title\x07[red]x")))
    tally.add(Observation(make_annotation(2, error=ErrorInfo(type="\x1b[31mE", message="late"))))
    screen = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=200)
    screen.print(as_table(tally))
    assert isinstance(screen.file, io.StringIO)
    assert "\x1b]" not in screen.file.getvalue()
    assert "[red]x" in screen.file.getvalue()
    assert "\\x1b[31mE" in screen.file.getvalue()


def test_json_counts_labels_errors_deciders_and_tests(summary: Tally) -> None:
    document = as_json(summary, run="r")
    expected = {
        "run": "r", "pairs": 5, "labels": {"1": 2, "0": 1, "null": 2}, "undecided": 1, "errors": {"ModelTimeout": 1},
        "decided_by": {"arbitrate": 3, "screen": 1}, "statuses": {"passed": 1, "error": 1},
        "causes": {"error: dependency": 1}, "programs": 2, "programs_executed": 1, "executed_share": 0.5,
        "cases_per_program": 2.0, "repairs": 2, "pairs_repaired": 1, "stand_ins": 2, "pairs_with_stand_ins": 1,
        "seconds": 2.0,
    }  # fmt: skip
    assert {name: document[name] for name in expected} == expected


def test_tests_in_modules_are_counted_by_reason(summary: Tally) -> None:
    tally = Tally()
    reasons = ["no origin", "no wheel: a 1.0", "no wheel: b 2.0", *(f"r{number}" for number in range(40))]
    contexts = [{"module": "a.b"}, *({"reason": reason} for reason in reasons)]
    for number, context in enumerate(contexts):
        tally.add(Observation(make_annotation(number, module_context=context)))
    modules = as_json(tally)["modules"]
    assert [modules[place] for place in ("in its module", "alone: no origin", "alone: no wheel")] == [1, 1, 2]
    assert (len(modules), sum(modules.values())) == (31, len(contexts))
    assert re.search(r"^modules .*\b2 alone: no wheel", print_summary(tally), re.MULTILINE)
    assert ("modules" in as_json(summary), "modules" in print_summary(summary)) == (False, False)


def test_an_error_is_not_counted_as_undecided(summary: Tally) -> None:
    rows = dict(line.split(maxsplit=1) for line in print_summary(summary).splitlines())
    figures = {name: [float(number) for number in re.findall(r"[\d.]+", row)] for name, row in rows.items()}
    assert figures["labels"] == [2, 1, 1]
    assert figures["programs"] == [1, 2, 50.0, 2.0]
    assert figures["model"] == [6, 300, 120, 30, 0.75]


def test_unknown_cost_stays_unknown() -> None:
    tally = Tally()
    tally.add(Observation(make_annotation(1, usage=Usage(calls=1, cost_usd=None))))
    tally.add(Observation(make_annotation(2, usage=Usage(calls=1, cost_usd=1.0))))
    assert tally.usage.cost_usd is None
    assert "unknown" in format_cost(None)
