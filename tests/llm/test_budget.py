"""A budget counts what calls spend, including failed ones, and refuses the next call at a limit."""

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


def make_reply(dollars: float | None) -> Reply:
    return Reply("x", usage=Usage(calls=1, cost_usd=dollars))


def make_gateway(replies: Any, budget: Budget) -> Gateway:
    return Gateway(Models.of(ScriptedLLM(replies)), budget=budget)


class TestDollars:
    async def test_calls_are_allowed_until_the_limit_is_reached(self) -> None:
        gateway = make_gateway([make_reply(0.6)] * 3, Budget(1.0))
        await gateway.ask(CALL)
        await gateway.ask(CALL)
        with pytest.raises(BudgetExceeded, match=r"\$1\.2000 "):
            await gateway.ask(CALL)

    async def test_the_cost_of_earlier_starts_counts(self) -> None:
        gateway = make_gateway([make_reply(0.3)], Budget(1.0, before_usd=0.9))
        await gateway.ask(CALL)
        with pytest.raises(BudgetExceeded, match=r"\$1\.2000 .*\$0\.9000 "):
            await gateway.ask(CALL)

    async def test_failed_calls_count(self) -> None:
        budget = Budget()
        with pytest.raises(ModelError):
            await make_gateway([ModelError("half a body", usage=Usage(calls=3, cost_usd=0.25))], budget).ask(CALL)
        assert (budget.spent.calls, budget.spent.cost_usd) == (3, 0.25)

    async def test_a_budget_without_a_known_price_is_refused(self) -> None:
        gateway = make_gateway([make_reply(None)] * 2, Budget(1.0))
        await gateway.ask(CALL)
        with pytest.raises(BudgetExceeded, match="prices="):
            await gateway.ask(CALL)

    async def test_calls_run_one_at_a_time_until_a_price_is_known(self) -> None:
        in_flight = most = 0

        async def slow(_: Call) -> Reply:
            nonlocal in_flight, most
            in_flight += 1
            most = max(most, in_flight)
            await asyncio.sleep(0)
            in_flight -= 1
            if len(script.calls) == 1:
                raise ModelError("HTTP 503", usage=Usage())
            return make_reply(None)

        script = ScriptedLLM(slow)
        gateway = Gateway(Models.of(script), budget=Budget(1.0))
        calls = (gateway.ask(replace(CALL, sample=sample)) for sample in range(8))
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(end) for end in ends] == [ModelError, Reply] + [BudgetExceeded] * 6
        assert (len(script.calls), most) == (2, 1)


def make_token_reply(read: int, written: int) -> Reply:
    return Reply("x", usage=Usage(calls=1, input_tokens=read, cached_input_tokens=read, output_tokens=written))


class TestTokens:
    async def test_input_and_output_tokens_count(self) -> None:
        gateway = make_gateway([make_token_reply(400, 100)] * 3, Budget(max_tokens=1000))
        await gateway.ask(CALL)
        await gateway.ask(CALL)
        with pytest.raises(BudgetExceeded, match=r"1,000 tokens .*1,000 spent") as error:
            await gateway.ask(CALL)
        assert "runner.max_tokens_total" in error.value.hint

    async def test_the_tokens_of_earlier_starts_count(self) -> None:
        with pytest.raises(BudgetExceeded, match=r"1,200 spent, 1,200 "):
            await make_gateway([make_token_reply(1, 1)], Budget(max_tokens=1000, before_tokens=1200)).ask(CALL)


@pytest.mark.parametrize(
    ("limit", "before", "option"),
    [
        ({"limit_usd": 1.0}, {"before_usd": None}, "budget"),
        ({"max_tokens": 1000}, {"before_tokens": None}, "runner.max_tokens_total"),
    ],
)
async def test_a_limit_is_refused_if_spending_of_earlier_starts_is_unknown(
    limit: Any, before: Any, option: str
) -> None:
    with pytest.raises(BudgetExceeded) as error:
        await make_gateway([make_reply(0.3)], Budget(**limit, **before)).ask(CALL)
    assert option in error.value.hint
    assert (await make_gateway([make_reply(0.3)], Budget(**before)).ask(CALL)).text == "x"


class TestTime:
    async def test_no_call_is_made_after_the_deadline(self) -> None:
        budget = Budget(deadline=Deadline.of("1h"))
        gateway = make_gateway([make_token_reply(1, 1)] * 2, budget)
        await gateway.ask(CALL)
        budget.deadline = Deadline(datetime.now(UTC))
        with pytest.raises(DeadlineReached):
            await gateway.ask(CALL)
