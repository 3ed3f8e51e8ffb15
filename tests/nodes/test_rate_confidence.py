"""Confidence: the arbiter's votes, the label they give, and a number that orders labels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config import PipelineConfig
from agent.llm.base import ScriptedLLM
from agent.nodes.asking import Arbitrate, ArbitrateByRule, ArbitrateOrAbstain
from agent.nodes.rate_confidence import RateConfidence, Vote, compute_confidence, compute_support
from agent.sandbox.scripted import ScriptedSandbox
from agent.state import State
from agent.types import Cause, QuerySpec, Reading, Status, TestReport
from tests.nodes.running import tools_in
from tests.scripts import PAIR

VOTES = st.lists(st.sampled_from([0, 1, None]), min_size=1, max_size=9)
SUPPORT = st.floats(-1, 1)


async def rated(
    replies: Sequence[int | tuple[int | None, int | None] | None],
    votes: int = 3,
    arbiter: type[Arbitrate] = Arbitrate,
    abstain: str = "keep",
    **more: Any,
) -> tuple[State, ScriptedLLM]:
    """Let the arbiter decide with these labels (or labels and readings), then rate; return the state."""
    answers = [each if isinstance(each, tuple) else (each, None) for each in replies]
    model = ScriptedLLM(
        [json.dumps({"reason": f"vote {n}", "reading": number, "label": to}) for n, (to, number) in enumerate(answers)]
    )
    config = PipelineConfig.model_validate({"votes": votes, "abstain": abstain})
    async with tools_in(ScriptedSandbox(), config, model) as tools:
        state: State = {"pair": PAIR, **more}  # type: ignore[typeddict-item]
        for node in (arbiter(), RateConfidence()):
            state = {**state, **(await node(state, tools)).update}
    return state, model


async def test_the_arbiter_is_asked_the_same_question_three_times_in_all() -> None:
    state, model = await rated([1, 1, 1])
    assert state["votes"] == (1, 1, 1)
    assert len({call.messages for call in model.calls}) == 1
    assert [call.role for call in model.calls] == ["arbitrate"] * 3
    assert len({call.sample for call in model.calls}) == 3


@pytest.mark.parametrize(("abstain", "kept"), [("keep", None), ("negative", 0)])
@pytest.mark.parametrize("labels", [[1, None, None], [None, None, 1], [0, 1, None]])
async def test_votes_that_do_not_decide_leave_the_label_that_the_setting_asks_for(
    labels: list[int | None], abstain: str, kept: int | None
) -> None:
    state, _ = await rated(labels, arbiter=ArbitrateOrAbstain, abstain=abstain)
    assert (state["label"], state["abstained"], state["confidence"]) == (kept, True, None)
    assert state["votes"] == tuple(labels)


@pytest.mark.parametrize(
    ("labels", "label", "reason"),
    [
        ([1, 0, 0], 0, "vote 1"),
        ([None, 0, 0], 0, "vote 1"),
        ([1, None, None], None, "vote 1"),
        ([None, 0, 1], None, "the votes are divided (undecided, 0, 1). vote 0"),
    ],
)
async def test_the_majority_decides_and_gives_its_reason(
    labels: list[int | None], label: int | None, reason: str
) -> None:
    state, _ = await rated(labels, votes=len(labels), arbiter=ArbitrateOrAbstain)
    assert (state["label"], state["reason"], state["decided_by"]) == (label, reason, "arbitrate")
    assert state["abstained"] is (label is None)
    assert state["confidence"] == (None if label is None else compute_confidence(label, labels, 0))  # type: ignore[arg-type]


TESTED, ONE, TWO = "what was tested", "reading one", "reading two"
SPEC = QuerySpec(readings=(Reading(text=ONE), Reading(text=TWO)))


async def read(votes: Sequence[tuple[int | None, int | None]], abstain: str = "keep") -> State:
    """Rate votes with readings on a pair whose test was of another reading."""
    return (await rated(votes, len(votes), ArbitrateOrAbstain, abstain, spec=SPEC, reading=TESTED))[0]


@pytest.mark.parametrize(
    ("votes", "found"),
    [
        ([(1, 2)], (1, TWO, "vote 0")),
        ([(0, None)], (0, "", "vote 0")),
        ([(1, 2), (0, None), (0, None)], (0, "", "vote 1")),
        ([(1, 2), (None, None), (None, None)], (None, "", "vote 1")),
        ([(1, 1), (1, 2), (1, 2)], (1, TWO, "vote 1")),
        ([(0, None), (1, 2), (1, 1)], (1, TWO, "vote 1")),
        ([(None, 1), (1, 1), (1, 2), (1, 2)], (1, TWO, "vote 2")),
    ],
)
async def test_the_reading_that_is_met_is_that_of_most_votes_for_the_label(
    votes: list[tuple[int | None, int | None]], found: tuple[int | None, str, str]
) -> None:
    state = await read(votes)
    assert (state["label"], state["matched"], state["reason"]) == found
    assert state["reading"] == TESTED


@pytest.mark.parametrize("votes", [[(1, 2), (0, None)], [(1, 2), (0, None), (None, None)]])
async def test_votes_that_are_divided_find_no_reading_met(votes: list[tuple[int | None, int | None]]) -> None:
    for abstain in ("keep", "negative"):
        assert (await read(votes, abstain))["matched"] == ""


async def test_one_vote_costs_no_call_beyond_the_arbiters() -> None:
    state, model = await rated([1], votes=1)
    assert len(model.calls) == 1
    assert "votes" not in state
    assert state["confidence"] == compute_confidence(1, [1], 0)


async def test_what_screener_or_rule_decided_is_rated_without_a_call() -> None:
    report = TestReport(status=Status.PASSED)
    async with tools_in(ScriptedSandbox()) as tools:
        screened: State = {"pair": PAIR, "label": 0, "decided_by": "screen", "reason": "r"}
        step = await RateConfidence()(screened, tools)
        assert step.update == {"confidence": compute_confidence(0, [0], 0)}
        ruled: State = {"pair": PAIR, "report": report}
        ruled = {**ruled, **(await ArbitrateByRule()(ruled, tools)).update}
        assert (await RateConfidence()(ruled, tools)).update == {"confidence": compute_confidence(1, [1], 0.5)}


@pytest.mark.parametrize(
    ("label", "report", "strength", "expected"),
    [
        (1, TestReport(status=Status.PASSED), 0.75, 0.75),
        (0, TestReport(status=Status.PASSED), 0.75, -0.75),
        (1, TestReport(status=Status.PASSED, vacuous=True), 0.5, 0.0),
        (0, TestReport(status=Status.PASSED, vacuous=True), 0.5, 0.0),
        (1, TestReport(status=Status.PASSED), None, 0.5),
        (0, TestReport(status=Status.FAILED), None, 0.5),
        (0, TestReport(status=Status.ERROR, cause=Cause.FLAKY), None, 0.0),
        (1, None, None, 0.0),
    ],
)
def test_a_test_speaks_for_a_label(label: int, report: TestReport | None, strength: Any, expected: float) -> None:
    state: State = {"strength": strength}
    if report is not None:
        state["report"] = report
    assert compute_support(label, state) == expected


@given(st.sampled_from([0, 1]), VOTES, SUPPORT)
def test_confidence_is_between_0_and_1(label: int, votes: list[Vote], support: float) -> None:
    assert 0 < compute_confidence(label, votes, support) < 1


@given(st.sampled_from([0, 1]), VOTES, SUPPORT, SUPPORT)
def test_confidence_rises_with_the_tests_support(label: int, votes: list[Vote], one: float, other: float) -> None:
    least, most = sorted((one, other))
    assert compute_confidence(label, votes, least) <= compute_confidence(label, votes, most)
    if most - least > 0.01:
        assert compute_confidence(label, votes, least) < compute_confidence(label, votes, most)
