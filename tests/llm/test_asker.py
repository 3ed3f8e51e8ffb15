"""One pair's questions: asked again with the cause, counted whatever becomes of them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from agent.errors import ModelError, ReplyError
from agent.history import Recorder
from agent.llm import parsing
from agent.llm.asker import Asker
from agent.llm.base import Reply, ScriptedLLM
from agent.llm.gateway import Gateway
from agent.llm.models import Models
from agent.nodes.asking import JUDGE
from agent.prompts import Prompts
from agent.types import Pair, Usage

VARIABLES: dict[str, Any] = {
    "query": "q", "code": "c", "language": "python", "fence": "python", "context": None, "criterion": "exact"
}  # fmt: skip
PAIR = Pair(id="7", query="q", code="c")
GOOD = '{"reason": "r", "label": 1}'


def asker(model: ScriptedLLM, reasks: int = 2) -> Asker:
    return Asker(Gateway(Models.of(model)), Prompts(), Recorder(PAIR), pair_id="7", reasks=reasks)


async def judge(asked: Asker) -> parsing.OpenLabelReply:
    return await asked.ask(JUDGE, VARIABLES, parsing.parse_label)


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


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        ("length", "the reply reached the limit on its length"),
        ("tool_calls", "the model called a tool, and was given none"),
        ("refusal", "the model refused to answer"),
    ],
)
async def test_how_an_unusable_reply_ended_is_told(ending: str, words: str) -> None:
    asked = asker(ScriptedLLM([Reply("", finish_reason=ending)]), reasks=0)
    with pytest.raises(ReplyError, match=f"the reply is blank \\({words}\\)"):
        await judge(asked)


async def test_it_gives_up_with_the_last_cause() -> None:
    asked = asker(ScriptedLLM(["a", "b", '{"label": 3}']))
    with pytest.raises(ReplyError, match="asked 3 times"):
        await judge(asked)
    assert [exchange.problem is None for exchange in asked.recorder.history.exchanges] == [False, False, False]


@pytest.mark.parametrize(
    ("replies", "reasks", "again"),
    [
        ((GOOD,), 2, [False]),
        (("no", "  ", GOOD), 2, [True, True, False]),
        (("  ", "no", " "), 2, [True, True, False]),
        (("no", GOOD), 0, [False, False]),
        ((ModelError("down"), GOOD), 2, [False, False]),
        (("no", ModelError("down"), GOOD), 2, [True, False, False]),
    ],
)
async def test_a_question_was_asked_again_where_it_was_and_not_by_another_vote(
    replies: tuple[str | ModelError, ...], reasks: int, again: list[bool]
) -> None:
    asked = asker(ScriptedLLM(replies), reasks)
    with suppress(ModelError, ReplyError):
        await judge(asked)
    with suppress(ModelError, ReplyError):
        if len(asked.recorder.history.exchanges) < len(replies):
            await asked.ask_again("judge", 1)
    assert list(asked.recorder.history.asked_again()) == again


async def test_the_usage_of_every_reply_and_of_failed_calls_counts() -> None:
    replies = [Reply(text, usage=Usage(calls=1, input_tokens=100, output_tokens=5)) for text in ("a", GOOD)]
    asked = asker(ScriptedLLM([*replies, ModelError("broken", usage=Usage(calls=4))]))
    await judge(asked)
    assert asked.usage == Usage(calls=2, input_tokens=200, output_tokens=10)
    with pytest.raises(ModelError):
        await judge(asked)
    assert asked.usage.calls == 6


async def test_turns_count_the_calls_of_a_role_and_calls_carry_their_schema() -> None:
    model = ScriptedLLM(["a", GOOD, GOOD])
    asked = asker(model)
    await judge(asked)
    await judge(asked)
    assert [call.turn for call in model.calls] == [0, 1, 2]
    assert {call.pair_id for call in model.calls} == {"7"}
    assert model.calls[0].schema == parsing.build_schema(parsing.LabelReply, model.calls[0].variables)


async def test_a_question_can_be_asked_again_word_by_word() -> None:
    model = ScriptedLLM([GOOD, '{"reason": "s", "label": 0}', "no", GOOD])
    asked = asker(model)
    await judge(asked)
    assert (await asked.ask_again("judge", 1)).label == 0
    assert (await asked.ask_again("judge", 2)).label == 1
    assert [call.messages for call in model.calls[:3]] == [model.calls[0].messages] * 3
    assert [call.turn for call in model.calls] == [0, 1, 2, 3]
    assert model.calls[2].sample == model.calls[3].sample
    assert (asked.has_asked("judge"), asked.has_asked("arbitrate")) == (True, False)


async def test_votes_have_replies_of_their_own_in_the_cache_and_the_first_keeps_the_rounds() -> None:
    model = ScriptedLLM([GOOD] * 6)
    for round_number in (0, 1):
        asked = Asker(Gateway(Models.of(model)), Prompts(), Recorder(PAIR), pair_id="7", sample=round_number)
        await judge(asked)
        for vote in (1, 2):
            await asked.ask_again("judge", vote)
    assert [call.sample for call in model.calls[::3]] == [0, 1]
    assert len({Gateway(Models.of(model)).compute_key(call) for call in model.calls}) == 6
