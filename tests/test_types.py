"""Test reports support labels, values round-trip and are validated, and votes have a majority."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agent.pipeline.history import Execution, History, ModelCall, NodeRun, Program
from agent.runs.store.annotations import encode_annotation
from agent.types import (
    Annotation,
    CaseOutcome,
    CaseResult,
    Cause,
    ErrorInfo,
    Frozen,
    ModuleContext,
    Origin,
    Pair,
    Simulated,
    Status,
    TestReport,
    Usage,
    Verdict,
    majority,
)

TEXT = st.text()  # without surrogates, which pydantic cannot read from JSON
CASES = st.builds(CaseResult, name=TEXT, outcome=st.sampled_from(CaseOutcome), message=TEXT)
REPORTS = st.builds(
    TestReport,
    status=st.sampled_from(Status),
    cause=st.none() | st.sampled_from(Cause),
    cases=st.lists(CASES, max_size=4).map(tuple),
    message=TEXT,
)
USAGES = st.builds(Usage, calls=st.integers(0, 9), cost_usd=st.none() | st.floats(0, 9))
ORIGINS = st.builds(
    Origin, **dict.fromkeys(("repository", "commit", "name"), TEXT), class_name=st.none() | TEXT, lines=st.just((1, 2))
)
META = st.dictionaries(TEXT, st.none() | st.integers() | TEXT, max_size=3)
PAIRS = st.builds(
    Pair, id=TEXT, query=TEXT, code=TEXT, language=TEXT, context=st.none() | TEXT, origin=st.none() | ORIGINS, meta=META
)
ANNOTATIONS = st.builds(
    Annotation,
    id=TEXT,
    input_sha256=TEXT,
    label=st.sampled_from((0, 1, None)),
    reason=TEXT,
    screen_verdict=st.none() | st.sampled_from(Verdict),
    test=st.none() | REPORTS,
    simulated=st.none() | st.builds(Simulated, status=st.sampled_from(("passed", "failed", "error")), reason=TEXT),
    stand_ins=st.lists(TEXT, max_size=2).map(tuple),
    module_context=st.none() | st.builds(ModuleContext, module=st.none() | TEXT, reason=TEXT),
    usage=USAGES,
    error=st.none() | st.builds(ErrorInfo, type=TEXT, message=TEXT),
    meta=META,
)
COUNT = st.integers(0, 9)
EXCHANGES = st.builds(
    ModelCall, role=TEXT, key=TEXT, messages=st.just(({"role": "user", "content": "?"},)), reply=TEXT, raw=META
)
EVENTS = (
    EXCHANGES
    | st.builds(Program, template=TEXT, source=TEXT, first_line=COUNT, last_line=COUNT, cases=st.just(("test_a",)))
    | st.builds(Execution, program=COUNT, report=REPORTS)
    | st.builds(NodeRun, node=TEXT, outcome=TEXT, seconds=st.just(1.5))
)
HISTORIES = st.builds(History, pair=PAIRS, events=st.lists(EVENTS, max_size=4).map(tuple))

RAISED = (CaseResult(name="test_a", outcome=CaseOutcome.ERROR, cause=Cause.SNIPPET),)
PASSED = TestReport(status=Status.PASSED)
FAILED = TestReport(status=Status.FAILED, cause=Cause.SNIPPET)
# of a pair without an origin, in this and in earlier versions
HASH = "dd25c2c968d5bae3a7824f0fcf601641e21cda0d7604a09793d828b37754bd8c"
INCONCLUSIVE = {
    "a snippet that does not parse": TestReport(status=Status.ERROR, cause=Cause.SNIPPET),
    "a snippet that raises": TestReport(status=Status.ERROR, cause=Cause.SNIPPET, cases=RAISED),
    "a broken program": TestReport(status=Status.ERROR, cause=Cause.PROGRAM),
    "a missing dependency": TestReport(status=Status.ERROR, cause=Cause.DEPENDENCY),
    "a program that was not run": TestReport(status=Status.NOT_RUN),
}


def annotation(label: int | None, **fields: object) -> Annotation:
    return Annotation.model_validate({"id": "1", "input_sha256": "", "label": label, **fields})


def test_a_passed_test_supports_label_1_and_a_failed_one_label_0() -> None:
    assert (PASSED.says, FAILED.says) == (1, 0)


def test_the_hash_of_a_pair_covers_its_origin_if_there_is_one() -> None:
    pair = Pair(id="1", query="q", code="c", language="py", context="x", meta={"n": 1})
    assert pair.input_sha256() == HASH
    places = ({}, {"name": "g"}, {"commit": "2"}, {"class_name": "A"}, {"lines": (1, 2)}, {"path": "\udc80"})
    origins = [Origin(**{"repository": "p", "commit": "1", "name": "f", **place}) for place in places]
    hashes = {pair.model_copy(update={"origin": origin}).input_sha256() for origin in origins}
    assert len(hashes - {HASH}) == len(places)


@pytest.mark.parametrize("report", INCONCLUSIVE.values(), ids=INCONCLUSIVE)
def test_other_outcomes_support_no_label(report: TestReport) -> None:
    assert report.says is None
    assert not any(annotation(label, test=report).against_test for label in (0, 1, None))


def test_a_label_may_contradict_the_test() -> None:
    assert annotation(0, test=PASSED).against_test
    assert annotation(1, test=FAILED).against_test
    assert not annotation(1, test=PASSED).against_test
    assert not annotation(0, test=FAILED).against_test
    assert not annotation(None, test=PASSED).against_test


@given(value=PAIRS | REPORTS | ANNOTATIONS | HISTORIES)
def test_values_round_trip(value: Frozen) -> None:
    kind = type(value)
    assert kind.model_validate(value.model_dump()) == value
    assert kind.model_validate(value.model_dump(mode="json")) == value
    assert kind.model_validate_json(value.model_dump_json(by_alias=True)) == value


@given(annotation=ANNOTATIONS)
def test_an_annotation_is_read_from_its_line(annotation: Annotation) -> None:
    assert Annotation.model_validate_json(encode_annotation(annotation)) == annotation


@pytest.mark.parametrize(("name", "count"), [("passed", 0), ("passed", True), ("failed", 1), ("errors", "1")])
def test_a_count_that_contradicts_the_cases_is_rejected(name: str, count: object) -> None:
    fields = TestReport(status=Status.ERROR, cases=STARTED_CASES).model_dump()
    with pytest.raises(ValidationError, match=rf"{name} is {count!r}, .*\b[01]\b"):
        TestReport.model_validate({**fields, name: count})
    with pytest.raises(ValidationError, match="skipped"):
        TestReport.model_validate({**fields, "skipped": 0})


STARTED_CASES = (
    CaseResult(name="test_a", outcome=CaseOutcome.PASSED),
    CaseResult(name="test_b", outcome=CaseOutcome.ERROR),
)
SKIPPED_CASES = (CaseResult(name="test_a", outcome=CaseOutcome.NOT_RUN),)


def test_a_program_whose_cases_started_counts_as_executed() -> None:
    assert TestReport(status=Status.ERROR, cause=Cause.SNIPPET, cases=STARTED_CASES).executed
    assert not TestReport(status=Status.ERROR, cause=Cause.SNIPPET, cases=SKIPPED_CASES).executed
    assert not TestReport(status=Status.ERROR, cause=Cause.SNIPPET).executed


@pytest.mark.parametrize("cause", [Cause.PROGRAM, Cause.DEPENDENCY, Cause.SANDBOX])
def test_a_broken_program_does_not_count_as_executed(cause: Cause) -> None:
    assert not TestReport(status=Status.ERROR, cause=cause, cases=STARTED_CASES).executed


@pytest.mark.parametrize(
    ("text", "name"),
    [("Python", "python"), (" PY3 ", "python"), ("C++", "c++"), ("cpp", "c++"), ("Klingon", "klingon")],
)
def test_a_language_accepts_any_case_and_common_aliases(text: str, name: str) -> None:
    pair = Pair(id="a", query="q", code="c", language=text)
    assert pair.language == name
    assert pair.input_sha256() == Pair(id="a", query="q", code="c", language=name).input_sha256()


@given(st.lists(st.sampled_from([0, 1, None]), max_size=9))
def test_a_majority_has_more_votes_than_any_other_label(votes: list[int | None]) -> None:
    counts = sorted((votes.count(label), str(label)) for label in (0, 1, None))
    winner = counts[2][1] if counts[2][0] > counts[1][0] else "None"
    assert str(majority(votes)) == winner
