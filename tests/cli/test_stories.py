"""The path that a pair took, in words."""

from __future__ import annotations

from agent.cli.stories import steps
from agent.history import Exchange, History, Visit
from agent.types import Annotation, CaseOutcome, CaseResult, Cause, ErrorInfo, Pair, Status, TestReport

PAIR = Pair(id="1", query="q", code="c")


def asked(role: str, attempt: int = 0, problem: str | None = None) -> Exchange:
    return Exchange(role=role, key="k", messages=(), reply="r", attempt=attempt, problem=problem)


def without_label(kind: str) -> Annotation:
    return Annotation(id="1", input_sha256="", error=ErrorInfo(type=kind, message="m"))


def test_the_last_reply_that_could_not_be_used_was_not_asked_again() -> None:
    tries = [asked("judge", attempt, "unreadable") for attempt in (0, 1, 2)]
    assert steps(without_label("ReplyError"), History(pair=PAIR, events=tuple(tries))) == [
        "asked again 2×", "ReplyError: m"
    ]  # fmt: skip
    assert steps(without_label("ModelError"), History(pair=PAIR, events=(tries[0],))) == ["ModelError: m"]


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


def test_a_repair_was_given_up_where_it_came_to_its_end() -> None:
    evidence = History(pair=PAIR, events=(asked("repair"),))
    assert steps(Annotation(id="1", input_sha256="", label=0), evidence) == ["repair given up"]
    assert steps(without_label("ReplyError"), evidence) == ["ReplyError: m"]
    over = evidence.model_copy(
        update={"events": (*evidence.events, Visit(node="repair", outcome="given_up", seconds=1.0))}
    )
    assert steps(without_label("ReplyError"), over) == ["repair given up", "ReplyError: m"]
