"""One pair's questions: asked again with the cause, counted whatever becomes of them."""

from __future__ import annotations

from typing import Any

import pytest

from agent.errors import ModelError, ReplyError
from agent.llm import parsing
from agent.llm.asking import Asker
from agent.llm.base import Reply
from agent.llm.gateway import Gateway
from agent.llm.models import Models
from agent.llm.scripted import ScriptedLLM
from agent.prompts import Prompts
from agent.types import Usage

VARIABLES: dict[str, Any] = {
    "query": "q", "code": "c", "language": "python", "fence": "python", "context": None, "criterion": "exact"
}  # fmt: skip
GOOD = '{"reason": "r", "label": 1}'


def asker(model: ScriptedLLM, reasks: int = 2) -> Asker:
    return Asker(Gateway(Models.of(model)), Prompts(), pair_id="7", reasks=reasks)


async def judge(asked: Asker) -> parsing.LabelReply:
    return await asked.ask("judge", VARIABLES, parsing.parse_label, reply="json")


async def test_a_reply_that_cannot_be_read_is_shown_back_with_the_cause() -> None:
    model = ScriptedLLM(["I think it matches", GOOD])
    assert (await judge(asker(model))).label == 1
    roles = [message.role for message in model.calls[1].messages]
    assert roles == ["system", "user", "assistant", "user"]
    assert model.calls[1].messages[2].content == "I think it matches"


async def test_a_blank_json_reply_is_asked_again_as_text() -> None:
    model = ScriptedLLM(["  \n ", GOOD])
    await judge(asker(model))
    assert [call.reply for call in model.calls] == ["json", "text"]


async def test_it_gives_up_with_the_last_cause() -> None:
    asked = asker(ScriptedLLM(["a", "b", '{"label": 3}']))
    with pytest.raises(ReplyError, match="asked 3 times"):
        await judge(asked)
    assert [exchange.problem is None for exchange in asked.exchanges] == [False, False, False]


async def test_the_usage_of_every_reply_counts() -> None:
    replies = [Reply(text, usage=Usage(calls=1, input_tokens=100, output_tokens=5)) for text in ("a", GOOD)]
    asked = asker(ScriptedLLM(replies))
    await judge(asked)
    assert asked.usage == Usage(calls=2, input_tokens=200, output_tokens=10)


async def test_the_usage_of_a_failed_call_counts() -> None:
    asked = asker(ScriptedLLM([ModelError("broken", usage=Usage(calls=4))]))
    with pytest.raises(ModelError):
        await judge(asked)
    assert asked.usage.calls == 4


async def test_turns_count_the_calls_of_a_role() -> None:
    model = ScriptedLLM(["a", GOOD, GOOD])
    asked = asker(model)
    await judge(asked)
    await judge(asked)
    assert [call.turn for call in model.calls] == [0, 1, 2]
    assert {call.pair_id for call in model.calls} == {"7"}


async def test_a_call_carries_the_schema_of_its_reply() -> None:
    model = ScriptedLLM([GOOD])
    await judge(asker(model))
    assert model.calls[0].schema == parsing.LabelReply.model_json_schema()
