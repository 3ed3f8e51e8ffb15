"""The closing summary adds up what annotations say."""

from __future__ import annotations

import io

import pytest

from agent.cli.summary import as_json, as_table, money
from agent.cli.text import Console
from agent.evaluation.tally import Seen, Tally
from agent.types import Annotation, CaseOutcome, CaseResult, Cause, ErrorInfo, Status, TestReport, Usage


def annotation(number: int, **fields: object) -> Annotation:
    return Annotation.model_validate({"id": str(number), "input_sha256": "0" * 64, **fields})


def report(status: Status, cause: Cause | None, *outcomes: CaseOutcome) -> TestReport:
    cases = tuple(CaseResult(name=f"test_{n}", outcome=outcome) for n, outcome in enumerate(outcomes))
    return TestReport(status=status, cause=cause, cases=cases)


def printed(summary: Tally, spent_usd: float | None = None) -> str:
    shown = io.StringIO()
    Console(file=shown, width=120).print(as_table(summary, 4.0, spent_usd=spent_usd))
    return shown.getvalue()


@pytest.fixture(scope="module")
def summary() -> Tally:
    paid = Usage(calls=2, input_tokens=100, cached_input_tokens=40, output_tokens=10, cost_usd=0.25)
    tally = Tally()
    passed = report(Status.PASSED, None, CaseOutcome.PASSED, CaseOutcome.PASSED, CaseOutcome.PASSED)
    lacking = report(Status.ERROR, Cause.DEPENDENCY, CaseOutcome.NOT_RUN)
    tally.add(Seen(annotation(1, label=1, decided_by="screen", usage=paid, seconds=1.5)))
    tally.add(Seen(annotation(2, label=1, decided_by="arbitrate", test=passed, stand_ins=("Db", "Net"), usage=paid)))
    tally.add(Seen(annotation(3, label=0, decided_by="arbitrate", test=lacking, repairs=2, seconds=0.5)))
    tally.add(Seen(annotation(4, decided_by="arbitrate")))
    tally.add(Seen(annotation(5, error=ErrorInfo(type="ModelTimeout", message="late"), usage=paid)))
    return tally


def test_names_from_a_strangers_file_cannot_steer_the_terminal() -> None:
    tally = Tally()
    tally.add(Seen(annotation(1, label=1, decided_by="\x1b]0;title\x07[red]x")))
    tally.add(Seen(annotation(2, error=ErrorInfo(type="\x1b[31mE", message="late"))))
    screen = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=200)
    screen.print(as_table(tally))
    assert isinstance(screen.file, io.StringIO)
    assert "\x1b]" not in screen.file.getvalue()
    assert "[red]x" in screen.file.getvalue()
    assert "\\x1b[31mE" in screen.file.getvalue()


def test_labels_errors_and_deciders_are_counted(summary: Tally) -> None:
    assert as_json(summary)["pairs"] == 5
    assert as_json(summary)["labels"] == {"1": 2, "0": 1, "null": 2}
    assert summary.errors == {"ModelTimeout": 1}
    assert as_json(summary)["decided_by"] == {"arbitrate": 3, "screen": 1}


def test_programs_that_ran_are_told_from_those_that_did_not(summary: Tally) -> None:
    assert (summary.programs, summary.executed, summary.executed_share) == (2, 1, 0.5)
    assert summary.cases_per_program == 2.0
    assert summary.statuses == {"passed": 1, "error": 1}
    assert as_json(summary)["causes"] == {"error: dependency": 1}
    assert (summary.repairs, len(summary.repaired)) == (2, 1)
    assert (summary.stand_ins, len(summary.with_stand_ins)) == (2, 1)


def test_tests_that_prove_nothing_are_counted_apart_and_strength_is_the_mean_of_those_that_were_checked() -> None:
    passed = report(Status.PASSED, None, CaseOutcome.PASSED)
    vacuous = passed.model_copy(update={"vacuous": True})
    tally = Tally()
    for number, (test, strength) in enumerate([(passed, 0.9), (vacuous, 0.25), (vacuous, 0.2), (passed, None)]):
        tally.add(Seen(annotation(number, label=1, test=test, strength=strength)))
    found = tally
    assert (found.statuses, found.vacuous, found.checked) == ({"passed": 4}, 2, 3)
    assert found.mean_strength == pytest.approx(0.45)
    told = as_json(found)
    assert (told["tests_vacuous"], told["tests_checked"], told["mean_strength"]) == (2, 3, 0.45)
    text = printed(found)
    assert "4 passed, of these 2 prove nothing" in text
    assert "0.45 on average, of 3 tests tried on mutants" in text


def test_where_no_test_was_checked_nothing_is_said_of_strength(summary: Tally) -> None:
    assert summary.mean_strength is None
    assert not {"strength", "nothing"} & set(printed(summary).split())


def test_usage_of_failed_pairs_is_in_the_sum(summary: Tally) -> None:
    assert summary.usage == Usage(calls=6, input_tokens=300, cached_input_tokens=120, output_tokens=30, cost_usd=0.75)
    assert summary.seconds == 2.0


def test_an_error_is_not_counted_as_undecided(summary: Tally) -> None:
    text = printed(summary)
    assert "2 match · 1 no match · 1 undecided" in text
    assert "1 of 2 ran (50.0%), 2.0 cases each" in text
    assert "6 calls paid · 300 tokens in (120 cached), 30 out · $0.7500" in text


def test_a_price_that_is_unknown_stays_unknown() -> None:
    tally = Tally()
    tally.add(Seen(annotation(1, usage=Usage(calls=1, cost_usd=None))))
    tally.add(Seen(annotation(2, usage=Usage(calls=1, cost_usd=1.0))))
    assert tally.usage.cost_usd is None
    assert money(None) == "cost unknown"


def test_a_run_without_pairs_has_a_summary() -> None:
    shown = as_json(Tally(), run="r")
    assert (shown["pairs"], shown["executed_share"], shown["cases_per_program"], shown["run"]) == (0, None, None, "r")
    assert as_table(Tally()).row_count > 0


def test_pairs_repaired_are_pairs_however_many_rounds_were() -> None:
    tally = Tally()
    for number in range(3):
        tally.add(Seen(annotation(1, round=number, label=1, repairs=2, stand_ins=("Db",))))
    summary = tally
    assert (summary.repairs, len(summary.repaired), summary.stand_ins, len(summary.with_stand_ins)) == (6, 1, 3, 1)


def test_what_the_folder_cost_is_told_where_it_is_more() -> None:
    tally = Tally()
    tally.add(Seen(annotation(1, usage=Usage(calls=1, cost_usd=0.5))))
    for spent, told in ((0.5, False), (0.500001, False), (None, False), (0.75, True)):
        assert ("folder  " in printed(tally, spent_usd=spent)) is told
    assert "$0.7500 paid in all its starts" in printed(tally, spent_usd=0.75)
