"""Outcomes are compared as far as they can be equal; a sample is drawn by its seed."""

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
def test_what_differs_does_so_both_ways_and_nothing_differs_from_itself(one: TestReport, other: TestReport) -> None:
    assert compare_reports(one, one) == ()
    there = {(each.subject, each.then, each.now) for each in compare_reports(one, other)}
    assert there == {(each.subject, each.now, each.then) for each in compare_reports(other, one)}
    if not there:
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
    assert compare_reports(then, timed_out(Cause.SNIPPET, Cause.SNIPPET)) == ()
    assert [each.subject for each in compare_reports(then, timed_out(Cause.PROGRAM, Cause.PROGRAM))] == [
        "cause of test_a"
    ]


def test_a_case_that_fails_by_now_is_named() -> None:
    then = TestReport(status=Status.PASSED, cases=(PASSED,))
    now = TestReport(status=Status.FAILED, cause=Cause.SNIPPET, cases=(FAILED,))
    assert [(each.subject, each.then, each.now) for each in compare_reports(then, now)] == [
        ("status", "passed", "failed"),
        ("cause", "none", "snippet"),
        ("test_a", "passed", "failed"),
        ("cause of test_a", "none", "snippet"),
        ("message of test_a", "", "1 != 2"),
    ]


def test_a_case_that_is_not_there_any_more_is_named() -> None:
    then = TestReport(status=Status.PASSED, cases=(PASSED,))
    assert compare_reports(then, TestReport(status=Status.PASSED)) == (
        Difference("outcome", "test_a", "passed", "absent"),
    )


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
    assert compare_reports(_with(then), _with(now)) == ()


def test_other_words_are() -> None:
    assert [each.subject for each in compare_reports(_with("1 != 2"), _with("1 != 3"))] == [
        "message",
        "message of test_a",
    ]


def test_where_a_program_stood_when_its_time_was_up_is_not_compared() -> None:
    def stood(line: int) -> TestReport:
        told = f"the time limit passed while test_a ran (snippet line {line}: `n += {line}`)"
        case = CaseResult(name="test_a", outcome=CaseOutcome.ERROR, message=told, cause=Cause.SNIPPET)
        return TestReport(status=Status.TIMEOUT, cause=Cause.SNIPPET, cases=(case,), message=told)

    assert compare_reports(stood(4), stood(5)) == ()


def _with(message: str) -> TestReport:
    case = FAILED.model_copy(update={"message": message})
    return TestReport(status=Status.FAILED, cause=Cause.SNIPPET, cases=(case,), message=message)


KEYS = st.lists(st.tuples(st.text(max_size=3), st.integers(0, 2)), unique=True).map(sorted)
MANY = [(str(number), 0) for number in range(1000)]


@given(KEYS, st.integers(1, 10), st.integers())
def test_a_sample_has_so_many_pairs_with_all_their_rounds_and_is_the_same_for_a_seed(
    keys: list[tuple[str, int]], size: int, seed: int
) -> None:
    found = sample_keys(keys, size, seed, lambda _key: 1)
    drawn = {pair for pair, _ in found}
    assert len(drawn) == min(size, len({pair for pair, _ in keys}))
    assert list(found) == [key for key in keys if key[0] in drawn]
    assert found == sample_keys(keys, size, seed, lambda _key: 1)


def test_another_seed_draws_others_and_only_what_is_drawn_is_looked_up() -> None:
    asked: list[Key] = []

    def segment_of(key: Key) -> int | None:
        asked.append(key)
        return 3 if int(key[0]) % 2 == 0 else None

    found = sample_keys(MANY, 10, 0, segment_of)
    assert found == {key: 3 for key in MANY if key in asked and int(key[0]) % 2 == 0}
    assert (len(found), len(asked) < 100) == (10, True)
    assert found != sample_keys(MANY, 10, 1, segment_of)
    for everything in (1000, None):
        assert list(sample_keys(MANY, everything, 0, segment_of)) == [key for key in MANY if int(key[0]) % 2 == 0]


def test_every_pair_is_as_likely_to_be_drawn() -> None:
    keys = MANY[:6]
    drawn = Counter(
        key for seed in range(3000) for key in sample_keys(keys, 2, seed, lambda key: None if key[0] == "3" else 1)
    )
    assert ("3", 0) not in drawn
    assert all(1050 < count < 1350 for count in drawn.values())
