"""Two outcomes of a program are the same, or it is said what differs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.evaluation.recorded import Difference, differences
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


@given(REPORTS)
def test_an_outcome_is_the_same_as_itself(report: TestReport) -> None:
    assert differences(report, report) == ()


@given(REPORTS, REPORTS)
def test_what_differs_does_so_both_ways(one: TestReport, other: TestReport) -> None:
    there = {(each.what, each.then, each.now) for each in differences(one, other)}
    assert there == {(each.what, each.now, each.then) for each in differences(other, one)}


@given(REPORTS, REPORTS)
def test_equal_outcomes_have_equal_statuses_causes_and_cases(one: TestReport, other: TestReport) -> None:
    if differences(one, other) == ():
        assert one.status == other.status
        assert {(c.name, c.outcome) for c in one.cases} == {(c.name, c.outcome) for c in other.cases}
        if one.status is not Status.TIMEOUT:
            assert one.cause == other.cause
            assert {(c.name, c.cause) for c in one.cases} == {(c.name, c.cause) for c in other.cases}


def test_whom_a_time_out_is_blamed_on_depends_on_the_moment_and_is_not_compared() -> None:
    def timed_out(cause: Cause, of_the_ended: Cause) -> TestReport:
        stood = "the time limit passed while test_b ran"
        return TestReport(
            status=Status.TIMEOUT,
            cause=cause,
            message=stood,
            cases=(
                CaseResult(name="test_a", outcome=CaseOutcome.FAILED, cause=of_the_ended, message="1 != 2"),
                CaseResult(name="test_b", outcome=CaseOutcome.ERROR, cause=cause, message=stood),
            ),
        )

    then = timed_out(Cause.PROGRAM, Cause.SNIPPET)
    assert differences(then, timed_out(Cause.SNIPPET, Cause.SNIPPET)) == ()
    assert [each.what for each in differences(then, timed_out(Cause.PROGRAM, Cause.PROGRAM))] == ["cause of test_a"]


def test_a_case_that_fails_by_now_is_named() -> None:
    then = TestReport(status=Status.PASSED, cases=(PASSED,))
    now = TestReport(status=Status.FAILED, cause=Cause.SNIPPET, cases=(FAILED,))
    assert [(each.what, each.then, each.now) for each in differences(then, now)] == [
        ("status", "passed", "failed"),
        ("cause", "none", "snippet"),
        ("test_a", "passed", "failed"),
        ("cause of test_a", "none", "snippet"),
        ("message of test_a", "", "1 != 2"),
    ]


def test_a_case_that_is_not_there_any_more_is_named() -> None:
    then = TestReport(status=Status.PASSED, cases=(PASSED,))
    assert differences(then, TestReport(status=Status.PASSED)) == (Difference("outcome", "test_a", "passed", "absent"),)


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("<object object at 0x7f31a2b3c4d5>", "<object object at 0x7fe8a2b3c4d5>"),
        ("no such file: '/tmp/tmpab12cd/x.txt'", "no such file: '/tmp/tmpzz99yy/x.txt'"),
        ("it took 0.31 s", "it took 2.08 s"),
        ("(/envs/294f12136a0829251f6c002e/numpy/core.py)", "(/envs/aaaa12136a0829251f6c002e/numpy/core.py)"),
    ],
)
def test_times_addresses_and_places_are_not_compared(then: str, now: str) -> None:
    assert _with(then) != _with(now)
    assert differences(_with(then), _with(now)) == ()


def test_other_words_are() -> None:
    assert [each.what for each in differences(_with("1 != 2"), _with("1 != 3"))] == ["message", "message of test_a"]


def test_where_a_program_stood_when_its_time_was_up_is_not_compared() -> None:
    def stood(line: int) -> TestReport:
        told = f"the time limit passed while test_a ran (snippet line {line}: `n += {line}`)"
        case = CaseResult(name="test_a", outcome=CaseOutcome.ERROR, message=told, cause=Cause.SNIPPET)
        return TestReport(status=Status.TIMEOUT, cause=Cause.SNIPPET, cases=(case,), message=told)

    assert differences(stood(4), stood(5)) == ()


def _with(message: str) -> TestReport:
    case = FAILED.model_copy(update={"message": message})
    return TestReport(status=Status.FAILED, cause=Cause.SNIPPET, cases=(case,), message=message)
