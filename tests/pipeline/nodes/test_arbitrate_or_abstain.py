"""The arbiter may abstain; a setting decides the label of an abstention."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent import Annotation, Annotator, ScriptedLLM
from agent.config import Config, PipelineConfig
from tests.scripts import PAIR, label

VARIANT = {"start": "arbitrate_or_abstain", "nodes": {"arbitrate_or_abstain": {"decided": "end"}}}
ABSTAINED = '{"reason": "unseen", "label": null}'


async def annotate(*replies: str, **options: Any) -> Annotation:
    async with Annotator(model=ScriptedLLM(list(replies)), **{"variant": VARIANT, **options}) as annotator:
        return await anext(annotator.annotate([PAIR]))


@pytest.mark.parametrize(("abstain", "expected"), [("keep", None), ("negative", 0)])
async def test_an_abstention_is_recorded_with_any_label(abstain: Any, expected: int | None) -> None:
    annotation = await annotate(ABSTAINED, config=Config(pipeline=PipelineConfig(abstain=abstain)))
    assert (annotation.label, annotation.abstained, annotation.error) == (expected, True, None)
    assert (annotation.decided_by, annotation.reason) == ("arbitrate", "unseen")


@pytest.mark.parametrize("value", [0, 1])
async def test_a_label_is_not_an_abstention(value: int) -> None:
    annotation = await annotate(label(value), config=Config(pipeline=PipelineConfig(abstain="negative")))
    assert (annotation.label, annotation.abstained, annotation.decided_by) == (value, False, "arbitrate")


@pytest.mark.parametrize("malformed", ['"null"', '"undecided"', '""', "[]", "2", "0.5", "false", "[null]"])
async def test_an_invalid_label_is_retried_and_not_an_abstention(malformed: str) -> None:
    annotation = await annotate(f'{{"reason": "r", "label": {malformed}}}', label(1))
    assert (annotation.label, annotation.abstained, annotation.usage.calls) == (1, False, 2)


async def test_a_reply_without_a_label_is_not_an_abstention() -> None:
    annotation = await annotate('{"reason": "r"}', '{"reason": "r", "label": null} {"label": 0}', "null")
    assert annotation.error is not None
    assert (annotation.error.type, annotation.label, annotation.abstained) == ("ReplyError", None, False)


async def test_the_plain_arbiter_must_decide() -> None:
    annotation = await annotate(ABSTAINED, label(0), without=["arbitrate_or_abstain"])
    assert (annotation.label, annotation.abstained, annotation.usage.calls) == (0, False, 2)


async def test_the_prompt_explains_abstention_only_if_it_is_allowed() -> None:
    for without, may_abstain in (((), True), (("arbitrate_or_abstain",), False)):
        model = ScriptedLLM([label(1)])
        async with Annotator(model=model, variant=VARIANT, without=without) as annotator:
            await anext(annotator.annotate([PAIR]))
        call = model.calls[0]
        assert ("or null" in call.messages[0].content) is may_abstain
        assert ("You must decide" in call.messages[0].content) is not may_abstain
        assert ("null" in json.dumps(call.schema)) is may_abstain
