"""What a test says of a pair, and when a label goes against it."""

from __future__ import annotations

import pytest

from agent.types import (
    PROVES_NOTHING,
    Annotation,
    CaseOutcome,
    CaseResult,
    Cause,
    Simulated,
    Status,
    TestReport,
)

RAISED = (CaseResult(name="test_a", outcome=CaseOutcome.ERROR, cause=Cause.SNIPPET),)
PASSED = TestReport(status=Status.PASSED)
VACUOUS = TestReport(status=Status.PASSED, vacuous=True)
FAILED = TestReport(status=Status.FAILED, cause=Cause.SNIPPET)
SAYING_NOTHING = {
    "a pass that proves nothing": VACUOUS,
    "a snippet that does not parse": TestReport(status=Status.ERROR, cause=Cause.SNIPPET),
    "a snippet that raises": TestReport(status=Status.ERROR, cause=Cause.SNIPPET, cases=RAISED),
    "a snippet that hangs": TestReport(status=Status.TIMEOUT, cause=Cause.SNIPPET, cases=RAISED),
    "a program that hangs": TestReport(status=Status.TIMEOUT, cause=Cause.PROGRAM),
    "a broken program": TestReport(status=Status.ERROR, cause=Cause.PROGRAM),
    "a missing dependency": TestReport(status=Status.ERROR, cause=Cause.DEPENDENCY),
    "a broken sandbox": TestReport(status=Status.ERROR, cause=Cause.SANDBOX),
    "an outcome by chance": TestReport(status=Status.ERROR, cause=Cause.FLAKY),
    "a program that was not run": TestReport(status=Status.NOT_RUN),
}


def annotation(label: int | None, **fields: object) -> Annotation:
    return Annotation.model_validate({"id": "1", "input_sha256": "", "label": label, **fields})


def test_a_test_says_1_when_it_passed_and_0_when_an_assertion_failed() -> None:
    assert (PASSED.says, FAILED.says) == (1, 0)


@pytest.mark.parametrize("report", SAYING_NOTHING.values(), ids=SAYING_NOTHING)
def test_whatever_else_became_of_a_test_says_nothing(report: TestReport) -> None:
    assert report.says is None
    assert not any(annotation(label, test=report).against_test for label in (0, 1, None))


def test_a_label_goes_against_a_test_that_says_the_other() -> None:
    assert annotation(0, test=PASSED).against_test
    assert annotation(1, test=FAILED).against_test
    assert not annotation(1, test=PASSED).against_test
    assert not annotation(0, test=FAILED).against_test
    assert not annotation(None, test=PASSED).against_test


def test_no_label_goes_against_an_outcome_that_was_predicted() -> None:
    assert not annotation(0, simulated=Simulated(status="passed")).against_test


def test_readers_are_told_of_a_pass_that_proves_nothing() -> None:
    assert (PASSED.outcome, VACUOUS.outcome, FAILED.outcome) == ("passed", PROVES_NOTHING, "failed")


STARTED = (CaseResult(name="test_a", outcome=CaseOutcome.PASSED), CaseResult(name="test_b", outcome=CaseOutcome.ERROR))
UNRUN = (CaseResult(name="test_a", outcome=CaseOutcome.NOT_RUN),)


@pytest.mark.parametrize("cause", [Cause.SNIPPET, Cause.FLAKY])
def test_a_program_ran_whose_cases_began_whatever_the_snippet_or_chance_made_of_them(cause: Cause) -> None:
    assert TestReport(status=Status.ERROR, cause=cause, cases=STARTED).executed
    assert not TestReport(status=Status.ERROR, cause=cause, cases=UNRUN).executed
    assert not TestReport(status=Status.ERROR, cause=cause).executed


@pytest.mark.parametrize("cause", [Cause.PROGRAM, Cause.DEPENDENCY, Cause.SANDBOX])
def test_a_program_that_failed_itself_did_not_run_as_a_test(cause: Cause) -> None:
    assert not TestReport(status=Status.ERROR, cause=cause, cases=STARTED).executed
