"""The scripted model: says what it was told to, and never more."""

from __future__ import annotations

import pytest

from agent.errors import AccountError, ModelError
from agent.llm.base import LLM, Call, Reply, ScriptedLLM
from agent.types import Message


def call(role: str = "screen", pair: str = "p1") -> Call:
    return Call(role=role, messages=(Message("user", "?"),), pair_id=pair)


async def test_answers_come_in_the_order_of_the_calls() -> None:
    model = ScriptedLLM(["first", "second"])
    assert [(await model.reply(call())).text, (await model.reply(call())).text] == ["first", "second"]


async def test_answers_by_role_do_not_mix() -> None:
    model = ScriptedLLM({"screen": ["s"], "judge": ["j"]})
    assert (await model.reply(call("judge"))).text == "j"
    assert (await model.reply(call("screen"))).text == "s"


async def test_a_function_answers_from_the_call() -> None:
    model = ScriptedLLM(lambda asked: f"for {asked.pair_id}")
    assert (await model.reply(call(pair="x"))).text == "for x"


async def test_an_async_function_is_awaited() -> None:
    async def answer(asked: Call) -> Reply:
        return Reply(asked.role, model="mine")

    assert (await ScriptedLLM(answer).reply(call())).model == "mine"


async def test_an_exception_in_the_script_is_raised() -> None:
    model = ScriptedLLM([AccountError("no credit"), "after"])
    with pytest.raises(AccountError, match="no credit"):
        await model.reply(call())
    assert (await model.reply(call())).text == "after"


@pytest.mark.parametrize("script", [[], {}, {"judge": ["j"]}, {"screen": []}])
async def test_an_exhausted_script_raises_and_names_the_call(script: object) -> None:
    with pytest.raises(ModelError, match="'screen', pair 'p1', turn 0"):
        await ScriptedLLM(script).reply(call())  # type: ignore[arg-type]


async def test_every_call_is_kept_and_counted() -> None:
    model = ScriptedLLM(["a", "b"])
    replies = [await model.reply(call(pair=pair)) for pair in ("1", "2")]
    assert [asked.pair_id for asked in model.calls] == ["1", "2"]
    assert [reply.usage.calls for reply in replies] == [1, 1]


async def test_the_given_list_is_left_alone() -> None:
    answers = ["a"]
    await ScriptedLLM(answers).reply(call())
    assert answers == ["a"]


def test_a_single_text_is_no_script() -> None:
    with pytest.raises(TypeError, match="list of texts"):
        ScriptedLLM("yes")


def test_it_is_a_language_model_with_an_identity() -> None:
    assert isinstance(ScriptedLLM([]), LLM)
    assert ScriptedLLM([], name="a").identity() != ScriptedLLM([], name="b").identity()
