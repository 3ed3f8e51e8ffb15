"""Retries of a pair's model calls state the cause, and all calls are counted."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from agent.errors import ModelError, ReplyError
from agent.llm import parsing
from agent.llm.base import Reply, ScriptedLLM
from agent.llm.gateway import Gateway
from agent.llm.models import Models
from agent.pipeline.asker import Asker
from agent.pipeline.history import Recorder
from agent.pipeline.nodes.asking import JUDGE
from agent.pipeline.prompts import Prompts
from agent.types import Pair, Usage

VARIABLES: dict[str, Any] = {
    "query": "q", "code": "c", "language": "python", "fence": "python", "context": None, "criterion": "exact"
}  # fmt: skip
PAIR = Pair(id="7", query="q", code="c")
GOOD = '{"reason": "r", "label": 1}'


def make_asker(model: ScriptedLLM, format_retries: int = 2) -> Asker:
    return Asker(Gateway(Models.of(model)), Prompts(), Recorder(PAIR), pair_id="7", format_retries=format_retries)


async def judge(asker: Asker) -> parsing.LabelReply:
    return await asker.ask(JUDGE, VARIABLES, parsing.parse_label)


async def test_an_unreadable_reply_is_quoted_in_the_retry() -> None:
    model = ScriptedLLM(["I think it matches", GOOD])
    assert (await judge(make_asker(model))).label == 1
    roles = [message.role for message in model.calls[1].messages]
    assert roles == ["system", "user", "assistant", "user"]
    assert model.calls[1].messages[2].content == "I think it matches"


async def test_a_blank_json_reply_is_retried_as_text() -> None:
    model = ScriptedLLM(["  \n ", GOOD])
    await judge(make_asker(model))
    assert [call.reply for call in model.calls] == ["json", "text"]


@pytest.mark.parametrize(("ending", "word"), [("length", "limit"), ("tool_calls", "tool"), ("refusal", "refused")])
async def test_the_error_names_the_finish_reason(ending: str, word: str) -> None:
    asker = make_asker(ScriptedLLM([Reply("", finish_reason=ending)]), format_retries=0)
    with pytest.raises(ReplyError, match=f"blank.*{word}"):
        await judge(asker)


@pytest.mark.parametrize(
    ("reply", "word"),
    [
        (Reply("", reasoning=GOOD), "reasoning field.*thinking=off"),
        (Reply(" \n", reasoning="hm", finish_reason="length"), "reasoning field.*limit.*thinking=off"),
        (Reply(f"<think>{GOOD}</think>"), "thinking"),
    ],
)
async def test_the_error_says_where_the_text_of_a_blank_reply_is(reply: Reply, word: str) -> None:
    with pytest.raises(ReplyError, match=word):
        await judge(make_asker(ScriptedLLM([reply] * 3)))


async def test_an_asker_gives_up_after_its_last_attempt() -> None:
    asker = make_asker(ScriptedLLM(["a", "b", '{"label": 3}']))
    with pytest.raises(ReplyError, match="3 attempts"):
        await judge(asker)
    assert [model_call.problem is None for model_call in asker.recorder.history.model_calls] == [False, False, False]


@pytest.mark.parametrize(
    ("replies", "format_retries", "asked_again"),
    [
        ((GOOD,), 2, [False]),
        (("no", "  ", GOOD), 2, [True, True, False]),
        (("  ", "no", " "), 2, [True, True, False]),
        (("no", GOOD), 0, [False, False]),
        ((ModelError("down"), GOOD), 2, [False, False]),
        (("no", ModelError("down"), GOOD), 2, [True, False, False]),
    ],
)
async def test_reasks_are_distinguished_from_later_calls(
    replies: tuple[str | ModelError, ...], format_retries: int, asked_again: list[bool]
) -> None:
    asker = make_asker(ScriptedLLM(replies), format_retries)
    with suppress(ModelError, ReplyError):
        await judge(asker)
    with suppress(ModelError, ReplyError):
        if len(asker.recorder.history.model_calls) < len(replies):
            await judge(asker)
    assert list(asker.recorder.history.asked_again()) == asked_again


async def test_usage_includes_every_reply_and_failed_calls() -> None:
    replies = [Reply(text, usage=Usage(calls=1, input_tokens=100, output_tokens=5)) for text in ("a", GOOD)]
    asker = make_asker(ScriptedLLM([*replies, ModelError("broken", usage=Usage(calls=4))]))
    await judge(asker)
    assert asker.usage == Usage(calls=2, input_tokens=200, output_tokens=10)
    with pytest.raises(ModelError):
        await judge(asker)
    assert asker.usage.calls == 6


async def test_calls_have_turn_numbers_per_role_and_a_schema() -> None:
    model = ScriptedLLM(["a", GOOD, GOOD])
    asker = make_asker(model)
    await judge(asker)
    await judge(asker)
    assert [call.turn for call in model.calls] == [0, 1, 2]
    assert {call.pair_id for call in model.calls} == {"7"}
    assert model.calls[0].schema == parsing.build_schema(parsing.LabelReply)


async def test_each_round_has_its_own_cache_key() -> None:
    model = ScriptedLLM([GOOD] * 2)
    gateway = Gateway(Models.of(model))
    for round_number in (0, 1):
        await judge(Asker(gateway, Prompts(), Recorder(PAIR), pair_id="7", sample=round_number))
    assert [call.sample for call in model.calls] == [0, 1]
    assert len({gateway.compute_key(call) for call in model.calls}) == 2
