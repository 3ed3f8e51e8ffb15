"""The path that a pair took, in words."""

from __future__ import annotations

from agent.cli.stories import steps
from agent.types import Annotation, CaseOutcome, CaseResult, Cause, Status, TestReport


def test_a_test_that_passed_and_proves_nothing_is_told_as_such() -> None:
    cases = (CaseResult(name="test_a", outcome=CaseOutcome.PASSED),)
    report = TestReport(status=Status.PASSED, cases=cases, vacuous=True)
    assert steps(Annotation(id="1", input_sha256="", test=report), None) == ["test passed, but proves nothing"]


def test_a_flaky_test_is_nobodys_fault() -> None:
    cases = (
        CaseResult(name="test_a", outcome=CaseOutcome.PASSED),
        CaseResult(name="test_b", outcome=CaseOutcome.ERROR, cause=Cause.FLAKY),
    )
    report = TestReport(status=Status.ERROR, cause=Cause.FLAKY, cases=cases)
    assert steps(Annotation(id="1", input_sha256="", test=report), None) == ["test flaky, 1 of 2 cases passed"]
