"""Tests for comparing test reports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.evaluation.recorded import Difference, compare_reports
from agent.types import CaseOutcome, CaseResult, Cause, Status, TestReport

CAUSES = st.none() | st.sampled_from(Cause)
CASES = st.lists(
    st.builds(
        CaseResult,
        name=st.text(max_size=3),
        outcome=st.sampled_from(CaseOutcome),
        message=st.text(max_size=20),
        cause=CAUSES,
    ),
    unique_by=lambda case: case.name,
    max_size=4,
).map(tuple)
REPORTS = st.builds(TestReport, status=st.sampled_from(Status), cause=CAUSES, cases=CASES, message=st.text(max_size=20))
PASSED = CaseResult(name="test_a", outcome=CaseOutcome.PASSED)
FAILED = CaseResult(name="test_a", outcome=CaseOutcome.FAILED, message="1 != 2", cause=Cause.SNIPPET)


@given(REPORTS, REPORTS)
def test_comparison_is_symmetric_and_equal_reports_do_not_differ(one: TestReport, other: TestReport) -> None:
    assert compare_reports(one, one) == ()
    changes = {(d.kind, d.case, d.then, d.now) for d in compare_reports(one, other)}
    assert changes == {(d.kind, d.case, d.now, d.then) for d in compare_reports(other, one)}
    if not changes:
        assert one.status == other.status
        assert {(c.name, c.outcome) for c in one.cases} == {(c.name, c.outcome) for c in other.cases}
        if one.status is not Status.TIMEOUT:
            assert one.cause == other.cause
            assert {(c.name, c.cause) for c in one.cases} == {(c.name, c.cause) for c in other.cases}


def test_the_cause_of_a_timeout_is_not_compared() -> None:
    def timed_out(cause: Cause, finished_cause: Cause) -> TestReport:
        message = "the time limit was reached while test_b ran"
        return TestReport(
            status=Status.TIMEOUT,
            cause=cause,
            message=message,
            cases=(
                CaseResult(name="test_a", outcome=CaseOutcome.FAILED, cause=finished_cause, message="1 != 2"),
                CaseResult(name="test_b", outcome=CaseOutcome.ERROR, cause=cause, message=message),
            ),
        )

    then = timed_out(Cause.PROGRAM, Cause.SNIPPET)
    assert compare_reports(then, timed_out(Cause.SNIPPET, Cause.SNIPPET)) == ()
    (difference,) = compare_reports(then, timed_out(Cause.PROGRAM, Cause.PROGRAM))
    assert (difference.kind, difference.case) == ("cause", "test_a")


def test_a_case_that_fails_now_is_a_difference() -> None:
    then = TestReport(status=Status.PASSED, cases=(PASSED,))
    now = TestReport(status=Status.FAILED, cause=Cause.SNIPPET, cases=(FAILED,))
    assert compare_reports(then, now) == (
        Difference("status", "", "passed", "failed"),
        Difference("cause", "", "none", "snippet"),
        Difference("outcome", "test_a", "passed", "failed"),
        Difference("cause", "test_a", "none", "snippet"),
        Difference("message", "test_a", "", "1 != 2"),
    )


def test_a_missing_case_is_a_difference() -> None:
    then = TestReport(status=Status.PASSED, cases=(PASSED,))
    (difference,) = compare_reports(then, TestReport(status=Status.PASSED))
    assert difference == Difference("outcome", "test_a", "passed", "absent")


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("<object object at 0x7f31a2b3c4d5>", "<object object at 0x7fe8a2b3c4d5>"),
        ("no such file: '/tmp/tmpab12cd/x.txt'", "no such file: '/tmp/tmpzz99yy/x.txt'"),
        ("it took 0.31 s", "it took 2.08 s"),
        ("(/envs/294f12136a0829251f6c002e/numpy/core.py)", "(/envs/aaaa12136a0829251f6c002e/numpy/core.py)"),
    ],
)
def test_times_addresses_and_paths_are_not_compared(then: str, now: str) -> None:
    assert make_report(then) != make_report(now)
    assert compare_reports(make_report(then), make_report(now)) == ()


def test_other_parts_of_messages_are_compared() -> None:
    differences = compare_reports(make_report("1 != 2"), make_report("1 != 3"))
    assert [(d.kind, d.case) for d in differences] == [("message", ""), ("message", "test_a")]


def test_the_position_of_a_timeout_is_not_compared() -> None:
    def timed_out_at(line: int) -> TestReport:
        message = f"the time limit was reached while test_a ran (snippet line {line}: `n += {line}`)"
        case = CaseResult(name="test_a", outcome=CaseOutcome.ERROR, message=message, cause=Cause.SNIPPET)
        return TestReport(status=Status.TIMEOUT, cause=Cause.SNIPPET, cases=(case,), message=message)

    assert compare_reports(timed_out_at(4), timed_out_at(5)) == ()


def make_report(message: str) -> TestReport:
    case = FAILED.model_copy(update={"message": message})
    return TestReport(status=Status.FAILED, cause=Cause.SNIPPET, cases=(case,), message=message)
