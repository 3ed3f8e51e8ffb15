"""A budget counts what calls spend, failed ones too, and refuses the next one when a limit is reached."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from agent.deadline import Deadline
from agent.errors import BudgetExceeded, DeadlineReached, ModelError
from agent.llm.base import Call, Message, Reply, ScriptedLLM
from agent.llm.budget import Budget
from agent.llm.gateway import Gateway
from agent.llm.models import Models
from agent.types import Usage

CALL = Call("judge", (Message("user", "hello"),), "json")


def cost(dollars: float | None) -> Reply:
    return Reply("x", usage=Usage(calls=1, cost_usd=dollars))


def budgeted(replies: Any, budget: Budget) -> Gateway:
    return Gateway(Models.of(ScriptedLLM(replies)), budget=budget)


class TestDollars:
    async def test_calls_are_answered_until_the_limit_is_reached(self) -> None:
        gateway = budgeted([cost(0.6)] * 3, Budget(1.0))
        await gateway.ask(CALL)
        await gateway.ask(CALL)
        with pytest.raises(BudgetExceeded, match=r"\$1 is used up \(\$1\.2000 spent\)"):
            await gateway.ask(CALL)

    async def test_what_earlier_starts_of_the_run_cost_is_part_of_it(self) -> None:
        gateway = budgeted([cost(0.3)], Budget(1.0, before_usd=0.9))
        await gateway.ask(CALL)
        with pytest.raises(BudgetExceeded, match=r"is used up \(\$1\.2000 spent, \$0\.9000 of it before this start\)"):
            await gateway.ask(CALL)

    async def test_failed_calls_count(self) -> None:
        budget = Budget()
        with pytest.raises(ModelError):
            await budgeted([ModelError("half a body", usage=Usage(calls=3, cost_usd=0.25))], budget).ask(CALL)
        assert (budget.spent.calls, budget.spent.cost_usd) == (3, 0.25)

    async def test_without_a_known_price_it_is_refused(self) -> None:
        gateway = budgeted([cost(None)] * 2, Budget(1.0))
        await gateway.ask(CALL)
        with pytest.raises(BudgetExceeded, match="no price is known"):
            await gateway.ask(CALL)

    async def test_until_a_price_is_known_one_call_is_made_at_a_time(self) -> None:
        at_work = most = 0

        async def slow(_: Call) -> Reply:
            nonlocal at_work, most
            at_work += 1
            most = max(most, at_work)
            await asyncio.sleep(0)
            at_work -= 1
            if len(script.calls) == 1:
                raise ModelError("HTTP 503", usage=Usage())
            return cost(None)

        script = ScriptedLLM(slow)
        gateway = Gateway(Models.of(script), budget=Budget(1.0))
        calls = (gateway.ask(replace(CALL, sample=sample)) for sample in range(8))
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(end) for end in ends] == [ModelError, Reply] + [BudgetExceeded] * 6
        assert (len(script.calls), most) == (2, 1)


def tokens(read: int, written: int) -> Reply:
    return Reply("x", usage=Usage(calls=1, input_tokens=read, cached_input_tokens=read, output_tokens=written))


class TestTokens:
    async def test_tokens_in_and_out_are_counted_until_the_limit_is_reached(self) -> None:
        gateway = budgeted([tokens(400, 100)] * 3, Budget(max_tokens=1000))
        await gateway.ask(CALL)
        await gateway.ask(CALL)
        with pytest.raises(BudgetExceeded, match=r"the 1,000 tokens are used up \(1,000 spent\)") as refused:
            await gateway.ask(CALL)
        assert refused.value.hint == "with more tokens (--max-tokens-total)"

    async def test_those_of_earlier_starts_are_among_them(self) -> None:
        with pytest.raises(BudgetExceeded, match=r"\(1,200 spent, 1,200 of them before this start\)"):
            await budgeted([tokens(1, 1)], Budget(max_tokens=1000, before_tokens=1200)).ask(CALL)


@pytest.mark.parametrize(
    ("limit", "before", "hint"),
    [
        ({"limit_usd": 1.0}, {"before_usd": None}, "without a budget"),
        ({"max_tokens": 1000}, {"before_tokens": None}, "without --max-tokens-total"),
    ],
)
async def test_a_limit_is_refused_where_earlier_starts_are_unknown(limit: Any, before: Any, hint: str) -> None:
    with pytest.raises(BudgetExceeded) as refused:
        await budgeted([cost(0.3)], Budget(**limit, **before)).ask(CALL)
    assert refused.value.hint == hint
    assert (await budgeted([cost(0.3)], Budget(**before)).ask(CALL)).text == "x"


class TestTime:
    async def test_no_call_is_made_after_the_deadline(self) -> None:
        budget = Budget(deadline=Deadline.of("1h"))
        gateway = budgeted([tokens(1, 1)] * 2, budget)
        await gateway.ask(CALL)
        budget.deadline = Deadline(datetime.now(UTC))
        with pytest.raises(DeadlineReached):
            await gateway.ask(CALL)
