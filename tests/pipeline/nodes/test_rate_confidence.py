"""Confidence: the arbiter's votes, their label, and a number that ranks labels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config import PipelineConfig
from agent.llm.base import ScriptedLLM
from agent.pipeline.nodes.asking import Arbitrate, ArbitrateByRule, ArbitrateOrAbstain
from agent.pipeline.nodes.rate_confidence import RateConfidence, Vote, compute_confidence, compute_support
from agent.pipeline.state import State
from agent.sandbox.scripted import ScriptedSandbox
from agent.types import Cause, QuerySpec, Reading, Status, TestReport
from tests.pipeline.nodes.running import open_tools
from tests.scripts import PAIR

VOTES = st.lists(st.sampled_from([0, 1, None]), min_size=1, max_size=9)
SUPPORT = st.floats(-1, 1)


async def rate(
    replies: Sequence[int | tuple[int | None, int | None] | None],
    votes: int = 3,
    arbiter: type[Arbitrate] = Arbitrate,
    abstain: str = "keep",
    **more: Any,
) -> tuple[State, ScriptedLLM]:
    """Rate a label after the arbiter decided with these labels (or labels and readings). Return the state."""
    pairs = [reply if isinstance(reply, tuple) else (reply, None) for reply in replies]
    model = ScriptedLLM(
        [json.dumps({"reason": f"vote {n}", "reading": number, "label": to}) for n, (to, number) in enumerate(pairs)]
    )
    config = PipelineConfig.model_validate({"votes": votes, "abstain": abstain})
    async with open_tools(ScriptedSandbox(), config, model) as tools:
        state: State = {"pair": PAIR, **more}  # type: ignore[typeddict-item]
        for node in (arbiter(), RateConfidence()):
            state = {**state, **(await node(state, tools)).update}
    return state, model


async def test_the_arbiter_is_called_three_times_with_one_prompt() -> None:
    state, model = await rate([1, 1, 1])
    assert state["votes"] == (1, 1, 1)
    assert len({call.messages for call in model.calls}) == 1
    assert [call.role for call in model.calls] == ["arbitrate"] * 3
    assert len({call.sample for call in model.calls}) == 3


@pytest.mark.parametrize(("abstain", "expected"), [("keep", None), ("negative", 0)])
@pytest.mark.parametrize("labels", [[1, None, None], [None, None, 1], [0, 1, None]])
async def test_the_setting_decides_the_label_of_a_tie(
    labels: list[int | None], abstain: str, expected: int | None
) -> None:
    state, _ = await rate(labels, arbiter=ArbitrateOrAbstain, abstain=abstain)
    assert (state["label"], state["abstained"], state["confidence"]) == (expected, True, None)
    assert state["votes"] == tuple(labels)


@pytest.mark.parametrize(
    ("labels", "label", "reason"),
    [
        ([1, 0, 0], 0, "vote 1"),
        ([None, 0, 0], 0, "vote 1"),
        ([1, None, None], None, "vote 1"),
        ([None, 0, 1], None, "vote 0"),
    ],
)
async def test_the_majority_decides_with_one_of_its_reasons(
    labels: list[int | None], label: int | None, reason: str
) -> None:
    state, _ = await rate(labels, votes=len(labels), arbiter=ArbitrateOrAbstain)
    assert (state["label"], state["decided_by"]) == (label, "arbitrate")
    assert state["reason"].endswith(reason)
    assert state["abstained"] is (label is None)
    assert state["confidence"] == (None if label is None else compute_confidence(label, labels, 0))  # type: ignore[arg-type]


TESTED, ONE, TWO = "what was tested", "reading one", "reading two"
SPEC = QuerySpec(readings=(Reading(text=ONE), Reading(text=TWO)))


async def rate_readings(votes: Sequence[tuple[int | None, int | None]], abstain: str = "keep") -> State:
    """Rate votes with readings, on a pair whose test covered another reading."""
    return (await rate(votes, len(votes), ArbitrateOrAbstain, abstain, spec=SPEC, reading=TESTED))[0]


@pytest.mark.parametrize(
    ("votes", "expected"),
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
async def test_the_matched_reading_has_the_most_votes_for_the_label(
    votes: list[tuple[int | None, int | None]], expected: tuple[int | None, str, str]
) -> None:
    state = await rate_readings(votes)
    assert (state["label"], state["matched"], state["reason"]) == expected
    assert state["reading"] == TESTED


@pytest.mark.parametrize("votes", [[(1, 2), (0, None)], [(1, 2), (0, None), (None, None)]])
async def test_a_tie_has_no_matched_reading(votes: list[tuple[int | None, int | None]]) -> None:
    for abstain in ("keep", "negative"):
        assert (await rate_readings(votes, abstain))["matched"] == ""


async def test_one_vote_needs_no_further_call() -> None:
    state, model = await rate([1], votes=1)
    assert len(model.calls) == 1
    assert "votes" not in state
    assert state["confidence"] == compute_confidence(1, [1], 0)


async def test_labels_of_screener_and_rule_are_rated_without_a_call() -> None:
    report = TestReport(status=Status.PASSED)
    async with open_tools(ScriptedSandbox()) as tools:
        screened_state: State = {"pair": PAIR, "label": 0, "decided_by": "screen", "reason": "r"}
        step = await RateConfidence()(screened_state, tools)
        assert step.update == {"confidence": compute_confidence(0, [0], 0)}
        state: State = {"pair": PAIR, "report": report}
        state = {**state, **(await ArbitrateByRule()(state, tools)).update}
        assert (await RateConfidence()(state, tools)).update == {"confidence": compute_confidence(1, [1], 0.5)}


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
def test_support_follows_outcome_and_strength(
    label: int, report: TestReport | None, strength: Any, expected: float
) -> None:
    state: State = {"strength": strength}
    if report is not None:
        state["report"] = report
    assert compute_support(label, state) == expected


@given(st.sampled_from([0, 1]), VOTES, SUPPORT)
def test_confidence_is_between_0_and_1(label: int, votes: list[Vote], support: float) -> None:
    assert 0 < compute_confidence(label, votes, support) < 1


@given(st.sampled_from([0, 1]), VOTES, SUPPORT, SUPPORT)
def test_confidence_rises_with_the_tests_support(label: int, votes: list[Vote], first: float, second: float) -> None:
    least, most = sorted((first, second))
    assert compute_confidence(label, votes, least) <= compute_confidence(label, votes, most)
    if most - least > 0.01:
        assert compute_confidence(label, votes, least) < compute_confidence(label, votes, most)
