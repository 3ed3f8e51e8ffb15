"""The scripted model returns its script and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from agent.errors import AccountError, ModelError
from agent.llm.base import Call, Reply, ScriptedLLM
from agent.types import Message


def call(role: str = "screen", pair: str = "p1") -> Call:
    return Call(role=role, messages=(Message("user", "?"),), pair_id=pair)


async def answer(item: Call) -> Reply:
    return Reply(f"{item.role} {item.pair_id}", model="mine")


@pytest.mark.parametrize(
    ("script", "calls", "texts"),
    [
        (["first", "second"], [call(), call()], ["first", "second"]),
        ({"screen": ["s"], "judge": ["j"]}, [call("judge"), call()], ["j", "s"]),
        (lambda item: f"for {item.pair_id}", [call(pair="x")], ["for x"]),
        (answer, [call("judge", "7")], ["judge 7"]),
    ],
)
async def test_replies_are_a_list_a_mapping_by_role_or_a_function(script: Any, calls: Any, texts: list[str]) -> None:
    model = ScriptedLLM(script)
    replies = [await model.reply(item) for item in calls]
    assert ([reply.text for reply in replies], model.calls) == (texts, calls)


async def test_exceptions_are_raised_and_texts_count_as_calls() -> None:
    answers = [AccountError("no credit"), "after"]
    model = ScriptedLLM(answers)
    with pytest.raises(AccountError, match="no credit"):
        await model.reply(call())
    assert ((await model.reply(call())).usage.calls, len(answers)) == (1, 2)


@pytest.mark.parametrize("script", [[], {}, {"judge": ["j"]}, {"screen": []}])
async def test_an_exhausted_script_names_the_call(script: Any) -> None:
    with pytest.raises(ModelError, match=r"'screen'.*'p1'"):
        await ScriptedLLM(script).reply(call())
