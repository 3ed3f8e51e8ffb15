"""The arbiter may say that the evidence does not decide; what that means for the label is a setting."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent import Annotation, Annotator, ScriptedLLM
from agent.config import Config, PipelineConfig
from tests.scripts import PAIR, label

VARIANT = {"start": "arbitrate_or_abstain", "nodes": {"arbitrate_or_abstain": {"decided": "end"}}}
ABSTAINED = '{"reason": "it cannot be seen", "label": null}'


async def annotate(*replies: str, **options: Any) -> Annotation:
    async with Annotator(model=ScriptedLLM(list(replies)), **{"variant": VARIANT, **options}) as annotator:
        return await anext(annotator.annotate([PAIR]))


@pytest.mark.parametrize(("abstain", "expected"), [("keep", None), ("negative", 0)])
async def test_an_abstention_is_kept_as_one_whatever_the_label(abstain: Any, expected: int | None) -> None:
    found = await annotate(ABSTAINED, config=Config(pipeline=PipelineConfig(abstain=abstain)))
    assert (found.label, found.abstained, found.error) == (expected, True, None)
    assert (found.decided_by, found.reason) == ("arbitrate", "it cannot be seen")


@pytest.mark.parametrize("value", [0, 1])
async def test_a_label_is_no_abstention(value: int) -> None:
    found = await annotate(label(value), config=Config(pipeline=PipelineConfig(abstain="negative")))
    assert (found.label, found.abstained, found.decided_by) == (value, False, "arbitrate")


@pytest.mark.parametrize("malformed", ['"null"', '"undecided"', '""', "[]", "2", "0.5", "false", "[null]"])
async def test_what_is_no_label_is_asked_again_rather_than_taken_for_an_abstention(malformed: str) -> None:
    found = await annotate(f'{{"reason": "r", "label": {malformed}}}', label(1))
    assert (found.label, found.abstained, found.usage.calls) == (1, False, 2)


async def test_a_reply_without_a_label_is_no_abstention() -> None:
    found = await annotate('{"reason": "r"}', '{"reason": "r", "label": null} {"label": 0}', "null")
    assert found.error is not None
    assert (found.error.type, found.label, found.abstained) == ("ReplyError", None, False)


async def test_the_plain_arbiter_must_decide() -> None:
    found = await annotate(ABSTAINED, label(0), without=["arbitrate_or_abstain"])
    assert (found.label, found.abstained, found.usage.calls) == (0, False, 2)


async def test_only_an_arbiter_that_may_is_told_how_to_abstain() -> None:
    for without, told in (((), True), (("arbitrate_or_abstain",), False)):
        model = ScriptedLLM([label(1)])
        async with Annotator(model=model, variant=VARIANT, without=without) as annotator:
            await anext(annotator.annotate([PAIR]))
        call = model.calls[0]
        assert ("or null" in call.messages[0].content) is told
        assert ("You must decide" in call.messages[0].content) is not told
        assert ("null" in json.dumps(call.schema)) is told
