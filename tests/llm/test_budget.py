"""A budget counts what calls cost, failed ones too, and refuses the next one when it is used up."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agent.errors import BudgetExceeded, ModelError
from agent.llm.base import Call, Reply
from agent.llm.budget import Budget, BudgetedModels
from agent.llm.models import Models
from agent.llm.scripted import ScriptedLLM
from agent.types import Usage

CALL = Call("judge", ())


def reply(cost: float | None) -> Reply:
    return Reply("x", usage=Usage(calls=1, cost_usd=cost))


async def test_calls_are_answered_until_the_limit_is_reached() -> None:
    budget = Budget(1.0)
    model = BudgetedModels(Models.of(ScriptedLLM([reply(0.6), reply(0.6), reply(0.6)])), budget).for_role("judge")
    await model.reply(CALL)
    await model.reply(CALL)
    with pytest.raises(BudgetExceeded, match=r"\$1 is used up \(\$1\.2000 spent\)"):
        await model.reply(CALL)


async def test_what_earlier_starts_of_the_run_cost_is_part_of_the_budget() -> None:
    model = BudgetedModels(Models.of(ScriptedLLM([reply(0.3)])), Budget(1.0, before_usd=0.9)).for_role("judge")
    await model.reply(CALL)
    with pytest.raises(BudgetExceeded, match=r"is used up \(\$1\.2000 spent, \$0\.9000 of it before this start\)"):
        await model.reply(CALL)


async def test_a_budget_is_refused_where_nobody_knows_what_earlier_starts_cost() -> None:
    script = ScriptedLLM([reply(0.3)])
    with pytest.raises(BudgetExceeded, match="what the run cost before is not known") as refused:
        await BudgetedModels(Models.of(script), Budget(1.0, before_usd=None)).for_role("judge").reply(CALL)
    assert (script.calls, refused.value.with_what) == ([], "without a budget")
    assert (await BudgetedModels(Models.of(script), Budget(before_usd=None)).for_role("judge").reply(CALL)).text == "x"


async def test_failed_calls_count() -> None:
    budget = Budget()
    failure = ModelError("half a body", usage=Usage(calls=3, cost_usd=0.25))
    model = BudgetedModels(Models.of(ScriptedLLM([failure])), budget).for_role("judge")
    with pytest.raises(ModelError):
        await model.reply(CALL)
    assert (budget.spent.calls, budget.spent.cost_usd) == (3, 0.25)


async def test_a_budget_without_a_known_price_is_refused() -> None:
    model = BudgetedModels(Models.of(ScriptedLLM([reply(None), reply(None)])), Budget(1.0)).for_role("judge")
    await model.reply(CALL)
    with pytest.raises(BudgetExceeded, match="no price is known"):
        await model.reply(CALL)


async def test_without_a_limit_nothing_is_refused() -> None:
    model = BudgetedModels(Models.of(ScriptedLLM([reply(None), reply(5.0)])), Budget()).for_role("judge")
    assert [(await model.reply(CALL)).text for _ in range(2)] == ["x", "x"]


async def test_until_a_price_is_known_one_call_is_made_at_a_time() -> None:
    at_work = most = 0

    async def slow(_: Call) -> Reply:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0)
        at_work -= 1
        if len(script.calls) == 1:
            raise ModelError("HTTP 503", usage=Usage())
        return reply(None)

    script = ScriptedLLM(slow)
    model = BudgetedModels(Models.of(script), Budget(1.0)).for_role("judge")
    ends = await asyncio.gather(*(model.reply(CALL) for _ in range(8)), return_exceptions=True)
    assert [type(end) for end in ends] == [ModelError, Reply] + [BudgetExceeded] * 6
    assert (len(script.calls), most) == (2, 1)


async def test_after_the_first_reply_calls_are_made_at_once() -> None:
    together = asyncio.Barrier(3)

    async def meet(call: Call) -> Reply:
        if call.turn:
            await together.wait()
        return reply(0.01)

    model = BudgetedModels(Models.of(ScriptedLLM(meet)), Budget(1.0)).for_role("judge")
    await model.reply(CALL)
    async with asyncio.timeout(10):
        assert len(await asyncio.gather(*(model.reply(replace(CALL, turn=1)) for _ in range(3)))) == 3
