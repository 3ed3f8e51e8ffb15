"""Stories contain every event once, in order. The path is the short form."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.pipeline.history import Command, Execution, History, HistoryItem, ModelCall, NodeRun
from agent.types import (
    Annotation,
    CaseOutcome,
    CaseResult,
    Cause,
    ErrorInfo,
    ModuleContext,
    Pair,
    Simulated,
    Status,
    TestReport,
    Verdict,
)
from agent.views.story import as_json, describe_path, iterate_event_steps, iterate_pair_steps, iterate_result_steps
from tests.views.runs import make_program

PAIR = Pair(id="p", query="first of a list", code="def first(items): ...", context="lists are never empty")
BROKEN = TestReport(status=Status.ERROR, cause=Cause.DEPENDENCY, message="no numpy")
PASSED = TestReport(status=Status.PASSED, cases=(CaseResult(name="test_a", outcome=CaseOutcome.PASSED),))
FAILED = TestReport(status=Status.FAILED)


def make_model_call(role: str, **fields: Any) -> ModelCall:
    messages = ({"role": "system", "content": "guidelines"}, {"role": "user", "content": f"prompt of {role}"})
    return ModelCall(**{"role": role, "key": "k", "messages": messages, "reply": "{}", **fields})


EVENTS: tuple[HistoryItem, ...] = (
    make_model_call("screen", problem="unreadable"),
    make_model_call("screen", attempt=1, cached=True),
    NodeRun(node="screen", outcome="unclear", seconds=1.5),
    make_program("source of the first"),
    Execution(program=0, report=BROKEN),
    Command(command="pip install numpy", outcome="installed", output="numpy==2.0\n"),
    Execution(program=0, report=PASSED, stdout="out", installed=("numpy==2.0",), seconds=0.25),
    Execution(program=0, report=FAILED, purpose="sentinel"),
    make_model_call("arbitrate", problem="cut off"),
)
HISTORY = History(pair=PAIR, events=EVENTS)


def test_steps_follow_the_order_of_events() -> None:
    steps = [
        ("reply", "screen", "$0.0000"),
        ("reply", "screen", "cache"),
        ("node_run", "screen", "unclear"),
        ("program", "program 1", ""),
        ("execution", "execution 1", "program 1: error, 0.00 s"),
        ("command", "command", "installed"),
        ("execution", "execution 2", "program 1: passed, 0.25 s"),
        ("rerun", "sentinel", "program 1: failed, 0.00 s"),
        ("reply", "arbitrate", "$0.0000"),
    ]
    for step, (kind, start, end) in zip(iterate_event_steps(HISTORY), steps, strict=True):
        assert (step.kind, step.title.startswith(start), step.title.endswith(end)) == (kind, True, True), step.title


def test_steps_contain_the_texts_of_their_events() -> None:
    steps = list(iterate_event_steps(HISTORY))
    assert [part.title.split()[:1] for part in steps[0].parts] == [["system"], ["user"], [], ["re-asked"]]
    assert [part.title.split()[:1] for part in steps[-1].parts] == [["system"], ["user"], [], ["unusable"]]
    assert steps[4].parts[0].outcomes == (("error", "", "cause: dependency"),)
    assert steps[4].parts[1].text == "no numpy"
    assert steps[5].parts[0].text == "$ pip install numpy\nnumpy==2.0"
    assert steps[6].parts[0].outcomes == (("passed", "", ""), ("passed", "test_a", ""))
    assert (steps[6].parts[1].title, steps[6].parts[1].text) == ("standard output", "out")
    assert steps[6].facts == {"installed": "numpy==2.0"}


@given(st.lists(st.sampled_from(EVENTS), max_size=8))
def test_every_event_appears_exactly_once(events: list[HistoryItem]) -> None:
    assert len(list(iterate_event_steps(History(pair=PAIR, events=tuple(events))))) == len(events)


def test_a_story_starts_with_the_pair_and_ends_with_the_grounds_for_the_label() -> None:
    assert [step.kind for step in iterate_pair_steps(PAIR)] == ["query", "context", "code"]
    label = Annotation(
        id="p", input_sha256="", label=1, decided_by="arbitrate", reason="it does", reading="a list backwards",
        stand_ins=("Fake",), test=PASSED,
    )  # fmt: skip
    (step,) = iterate_result_steps(label, HISTORY)
    assert (step.title.split(",")[0], "arbitrate" in step.title, step.parts[0].text) == ("label 1", True, "it does")
    assert step.facts == {"reading": "a list backwards", "stand-ins": "Fake"}
    assert [step.kind for step in iterate_result_steps(label, None)] == ["test", "label"]


@pytest.mark.parametrize("context", [ModuleContext(module="a.b"), ModuleContext(reason="a.b")])
def test_the_label_and_the_path_say_where_the_test_ran(context: ModuleContext) -> None:
    label = Annotation(id="p", input_sha256="", label=1, test=PASSED, module_context=context)
    *_, step = iterate_result_steps(label, None)
    assert "a.b" in step.facts["tested"]
    assert step.facts["tested"] in describe_path(label, None)


def test_the_label_of_an_audited_pair_includes_the_screener_verdict() -> None:
    label = Annotation(id="p", input_sha256="", label=0, decided_by="arbitrate", screen_verdict=Verdict.MATCH)
    assert [step.facts for step in iterate_result_steps(label, None)] == [{}]
    (step,) = iterate_result_steps(label.model_copy(update={"audited": True}), None)
    assert [(name, text.split()[-1]) for name, text in step.facts.items()] == [("audited", "match")]


def test_the_result_includes_a_test_without_execution_a_prediction_and_an_error() -> None:
    unparsable = TestReport(status=Status.ERROR, cause=Cause.SNIPPET, message="it does not parse")
    annotation = Annotation(
        id="p",
        input_sha256="",
        test=unparsable,
        simulated=Simulated(status="passed"),
        error=ErrorInfo(type="E", message="m"),
    )
    test, simulated, label = iterate_result_steps(annotation, HISTORY)
    assert (test.kind, simulated.kind, simulated.title.split()[-1]) == ("test", "simulated", "passed")
    assert (label.title, label.parts[0].text) == ("no label", "E: m")


def test_pages_refer_to_shared_prompts_by_number_or_omit_prompts() -> None:
    shared = as_json(iterate_event_steps(HISTORY), lambda text: 7 if text == "guidelines" else None)
    assert [part.get("shared", part.get("text")) for part in shared[0]["parts"]][:2] == [7, "prompt of screen"]
    bare = as_json(iterate_event_steps(HISTORY))
    assert "prompt of" not in str(bare)
    assert bare[2] == {"kind": "node_run", "title": "screen: unclear", "facts": {"time": "1.50 s"}}


def label(**fields: Any) -> Annotation:
    return Annotation(id="1", input_sha256="", **fields)


def test_the_path_counts_re_asked_prompts_and_ends_with_the_error() -> None:
    model_calls = [make_model_call("judge", problem="unreadable", attempt=number) for number in range(3)]
    broken = label(error=ErrorInfo(type="ReplyError", message="m"))
    assert describe_path(broken, History(pair=PAIR, events=tuple(model_calls))) == ["re-asked 2×", "ReplyError: m"]
    assert describe_path(broken, History(pair=PAIR, events=tuple(model_calls[:1]))) == ["ReplyError: m"]
    assert describe_path(broken, None) == ["ReplyError: m"]


def test_the_path_describes_test_outcomes() -> None:
    half_passed = (*PASSED.cases, CaseResult(name="test_b", outcome=CaseOutcome.ERROR, cause=Cause.SNIPPET))
    for report, words in (
        (PASSED, "test passed, 1 case"),
        (
            TestReport(status=Status.TIMEOUT, cause=Cause.SNIPPET, cases=half_passed),
            "test timeout by the snippet, 1 of 2",
        ),
        (TestReport(status=Status.ERROR, cause=Cause.SNIPPET), "does not parse"),
        (TestReport(status=Status.ERROR, cause=Cause.DEPENDENCY), "does not parse"),
    ):
        (stage,) = describe_path(label(test=report), None)
        assert stage.startswith(words)


def test_introspection_names_appear_with_the_outcome() -> None:
    annotation = label(test=PASSED.model_copy(update={"introspection": ("_getframe",)}))
    assert "_getframe" in describe_path(annotation, None)[1]
    (outcome, *_), *_ = [
        part.outcomes for step in iterate_result_steps(annotation, None) for part in step.parts if part.outcomes
    ]
    assert (outcome[0], "_getframe" in outcome[2]) == ("passed", True)


def test_the_path_describes_repairs_and_failed_repairs() -> None:
    refused = Command(command="sudo reboot", outcome="refused")
    history = History(pair=PAIR, events=(refused, *EVENTS))
    assert describe_path(label(repairs=1), history)[-1] == "repaired (pip install numpy; 1 refused)"
    assert ["repaired" in stage for stage in describe_path(label(repairs=1), None)] == [True]
    history = History(pair=PAIR, events=(NodeRun(node="repair", outcome="given_up", seconds=1.0),))
    assert ["repair" in stage for stage in describe_path(label(label=0), history)] == [True]
