"""The circuit breaker stops a run in which most pairs end in the same error."""

from __future__ import annotations

import pytest

from agent.errors import Outage
from agent.pipeline.history import Execution, History, HistoryItem, ModelCall
from agent.runs.job import CircuitBreaker
from agent.types import Annotation, ErrorInfo, Pair, Status, TestReport


def end_pair(error: str | None, *roles: str, executed: bool = False) -> tuple[Annotation, History]:
    """Return a pair that made calls in these roles, and its error if one ended it."""
    pair = Pair(id="1", query="q", code="c")
    info = None if error is None else ErrorInfo(type=error, message="HTTP 503")
    annotation = Annotation(id="1", input_sha256="", label=None, error=info)
    events: list[HistoryItem] = [ModelCall(role=role, key="", messages=(), reply="") for role in roles]
    if executed:
        events.append(Execution(program=0, report=TestReport(status=Status.PASSED)))
    return annotation, History(pair=pair, events=tuple(events))


@pytest.mark.parametrize("error", ["ModelUnavailable", "ModelTimeout", "ReplyError", "PairTimeout"])
def test_a_role_that_always_fails_ends_the_run(error: str) -> None:
    breaker = CircuitBreaker()
    for _ in range(19):
        breaker.count(*end_pair(error, "screen", "judge"))
    with pytest.raises(Outage, match=rf"HTTP 503.* 20 .*'judge'.*{error}"):
        breaker.count(*end_pair(error, "screen", "judge"))


def test_sandboxes_that_always_fail_end_the_run() -> None:
    breaker = CircuitBreaker()
    for _ in range(19):
        breaker.count(*end_pair("EngineLost", "screen"))
    with pytest.raises(Outage, match="'sandbox'"):
        breaker.count(*end_pair("EngineLost", "screen"))


def test_the_threshold_is_80_percent() -> None:
    breaker = CircuitBreaker()
    for number in range(200):
        breaker.count(*end_pair("ReplyError" if number % 4 else None, "judge"))
    for _ in range(16):
        breaker.count(*end_pair("ReplyError", "judge"))
    with pytest.raises(Outage, match=r"\b80\b.*\b100\b"):
        breaker.count(*end_pair("ReplyError", "judge"))


def test_pairs_that_succeed_in_other_roles_do_not_hide_an_outage() -> None:
    breaker = CircuitBreaker()
    for _ in range(19):
        breaker.count(*end_pair("ModelUnavailable", "screen", "judge"))
        breaker.count(*end_pair(None, "screen"))
    with pytest.raises(Outage, match=r"\b20\b.*'judge'"):
        breaker.count(*end_pair("ModelUnavailable", "screen", "judge"))


def test_errors_are_counted_by_type_and_those_of_the_pair_are_ignored() -> None:
    breaker = CircuitBreaker()
    for number in range(300):
        kinds = ("ReplyError", "ModelUnavailable", "SnippetTooLarge", "UnsupportedLanguage")
        breaker.count(*end_pair(kinds[number % 4], "judge", executed=True))
