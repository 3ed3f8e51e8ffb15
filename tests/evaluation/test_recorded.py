"""Tests for comparing test reports and sampling executions."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.evaluation.recorded import Difference, Key, compare_reports, sample_keys
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
    changes = {(d.subject, d.then, d.now) for d in compare_reports(one, other)}
    assert changes == {(d.subject, d.now, d.then) for d in compare_reports(other, one)}
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
    assert [d.subject for d in compare_reports(then, timed_out(Cause.PROGRAM, Cause.PROGRAM))] == ["cause of test_a"]


def test_a_case_that_fails_now_is_a_difference() -> None:
    then = TestReport(status=Status.PASSED, cases=(PASSED,))
    now = TestReport(status=Status.FAILED, cause=Cause.SNIPPET, cases=(FAILED,))
    assert [(d.subject, d.then, d.now) for d in compare_reports(then, now)] == [
        ("status", "passed", "failed"),
        ("cause", "none", "snippet"),
        ("test_a", "passed", "failed"),
        ("cause of test_a", "none", "snippet"),
        ("message of test_a", "", "1 != 2"),
    ]


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
    assert [d.subject for d in differences] == ["message", "message of test_a"]


def test_the_position_of_a_timeout_is_not_compared() -> None:
    def timed_out_at(line: int) -> TestReport:
        message = f"the time limit was reached while test_a ran (snippet line {line}: `n += {line}`)"
        case = CaseResult(name="test_a", outcome=CaseOutcome.ERROR, message=message, cause=Cause.SNIPPET)
        return TestReport(status=Status.TIMEOUT, cause=Cause.SNIPPET, cases=(case,), message=message)

    assert compare_reports(timed_out_at(4), timed_out_at(5)) == ()


def make_report(message: str) -> TestReport:
    case = FAILED.model_copy(update={"message": message})
    return TestReport(status=Status.FAILED, cause=Cause.SNIPPET, cases=(case,), message=message)


KEYS = st.lists(st.tuples(st.text(max_size=3), st.integers(0, 2)), unique=True).map(sorted)
MANY = [(str(number), 0) for number in range(1000)]


@given(KEYS, st.integers(1, 10), st.integers())
def test_a_sample_has_the_given_size_with_all_rounds_and_depends_on_the_seed(
    keys: list[tuple[str, int]], size: int, seed: int
) -> None:
    sample = sample_keys(keys, size, seed, lambda _key: 1)
    pairs = {pair for pair, _ in sample}
    assert len(pairs) == min(size, len({pair for pair, _ in keys}))
    assert list(sample) == [key for key in keys if key[0] in pairs]
    assert sample == sample_keys(keys, size, seed, lambda _key: 1)


def test_another_seed_draws_other_pairs_and_only_drawn_pairs_are_looked_up() -> None:
    looked_up: list[Key] = []

    def segment_of(key: Key) -> int | None:
        looked_up.append(key)
        return 3 if int(key[0]) % 2 == 0 else None

    sample = sample_keys(MANY, 10, 0, segment_of)
    assert sample == {key: 3 for key in MANY if key in looked_up and int(key[0]) % 2 == 0}
    assert (len(sample), len(looked_up) < 100) == (10, True)
    assert sample != sample_keys(MANY, 10, 1, segment_of)
    for size in (1000, None):
        assert list(sample_keys(MANY, size, 0, segment_of)) == [key for key in MANY if int(key[0]) % 2 == 0]


def test_every_pair_is_equally_likely_to_be_drawn() -> None:
    keys = MANY[:6]
    drawn = Counter(
        key for seed in range(3000) for key in sample_keys(keys, 2, seed, lambda key: None if key[0] == "3" else 1)
    )
    assert ("3", 0) not in drawn
    assert all(1050 < count < 1350 for count in drawn.values())
