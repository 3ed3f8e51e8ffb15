"""A model's server that has gone ends the run; one that fails a call here and there does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.errors import ModelError, ModelOutage, ModelTimeout, ModelUnavailable
from agent.llm.base import Call
from agent.llm.models import Models
from agent.llm.outage import SteadyModels
from agent.llm.scripted import ScriptedLLM

CALL = Call("judge", ())


def steady(replies: Any, calls_at_once: int = 1) -> Any:
    return SteadyModels(Models.of(ScriptedLLM(replies)), calls_at_once=calls_at_once).for_role("judge")


async def failures(model: Any, number: int) -> None:
    for _ in range(number):
        with pytest.raises(ModelError):
            await model.reply(CALL)


@pytest.mark.parametrize("error", [ModelUnavailable("HTTP 503"), ModelTimeout("no reply")])
@pytest.mark.parametrize(("calls_at_once", "limit"), [(1, 20), (10, 20), (16, 32)])
async def test_so_many_failures_in_a_row_end_the_run(error: ModelError, calls_at_once: int, limit: int) -> None:
    model = steady(lambda _: error, calls_at_once)
    await failures(model, limit - 1)
    with pytest.raises(ModelOutage, match=f"the last {limit} calls, all in a row"):
        await model.reply(CALL)


@pytest.mark.parametrize("between", ["fine", ModelError("HTTP 400: too long")])
async def test_any_answer_of_the_server_ends_the_row(between: Any) -> None:
    model = steady([*[ModelUnavailable("HTTP 503")] * 19, between, *[ModelUnavailable("HTTP 503")] * 19])
    await failures(model, 19)
    if isinstance(between, str):
        await model.reply(CALL)
    else:
        await failures(model, 1)
    await failures(model, 19)


async def test_calls_that_were_given_up_waiting_count() -> None:
    async def forever(_: Call) -> str:
        await asyncio.Event().wait()
        return ""

    model = steady(forever)
    for _ in range(20):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(model.reply(CALL), 0.001)
    with pytest.raises(ModelOutage):
        await model.reply(CALL)


async def test_models_are_counted_apart_and_roles_of_one_model_together() -> None:
    gone, there = ScriptedLLM(lambda _: ModelUnavailable("HTTP 503")), ScriptedLLM(lambda _: "fine")
    models = SteadyModels(Models.of({"default": there, "judge": gone, "arbitrate": gone}), calls_at_once=1)
    for _ in range(10):
        for role in ("judge", "arbitrate"):
            await models.for_role("screen").reply(CALL)
            with pytest.raises((ModelUnavailable, ModelOutage)):
                await models.for_role(role).reply(CALL)
    with pytest.raises(ModelOutage):
        await models.for_role("judge").reply(CALL)
    assert (await models.for_role("screen").reply(CALL)).text == "fine"
