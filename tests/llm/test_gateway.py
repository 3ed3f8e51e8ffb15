"""Identical calls share a reply, cached replies are not paid for again, and errors are never cached."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agent import Annotator
from agent.errors import ModelError, Outage
from agent.llm.base import Call, Message, Reply, ScriptedLLM
from agent.llm.gateway import Gateway, MemoryReplyCache
from agent.llm.heuristic import HeuristicModel
from agent.llm.models import Models
from agent.types import Pair, Usage

CALL = Call("judge", (Message("user", "hello"),), "json")


class Gate:
    """A model that replies once its gate is open, and counts its calls."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.called = asyncio.Event()
        self.calls = 0
        self.error: ModelError | None = None

    def identity(self) -> dict[str, str]:
        return {"model": "gate"}

    async def reply(self, call: Call) -> Reply:
        self.calls += 1
        self.called.set()
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return Reply(call.reply, usage=Usage(calls=1))


async def test_equal_calls_in_flight_share_one_reply() -> None:
    model = Gate()
    gateway = Gateway(Models.of(model))
    tasks = [asyncio.ensure_future(gateway.ask(CALL)) for _ in range(3)]
    await model.called.wait()
    model.open.set()
    replies = await asyncio.gather(*tasks)
    assert model.calls == 1
    assert sorted(reply.usage.calls for reply in replies) == [0, 0, 1]
    assert [reply.cached for reply in replies].count(True) == 2


async def test_a_cached_reply_has_its_original_cost_and_duration() -> None:
    cache, paid = MemoryReplyCache(), Usage(calls=2, input_tokens=9, cost_usd=0.5)
    first = await Gateway(Models.of(ScriptedLLM([Reply("hi", usage=paid)])), cache=cache).ask(CALL)
    second = await Gateway(Models.of(ScriptedLLM([])), cache=cache).ask(CALL)
    assert (first.text, first.cached, first.usage, first.saved) == ("hi", False, paid, Usage())
    assert (second.text, second.cached, second.usage, second.saved) == ("hi", True, Usage(), paid)
    assert second.seconds == first.seconds is not None


async def test_followers_share_the_error_without_its_usage() -> None:
    model = Gate()
    model.error = ModelError("broken", usage=Usage(calls=2))
    gateway = Gateway(Models.of(model))
    tasks = [asyncio.ensure_future(gateway.ask(CALL)) for _ in range(2)]
    await model.called.wait()
    model.open.set()
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(error) for error in errors] == ["broken", "broken"]
    assert [getattr(error, "usage", None) for error in errors] == [Usage(calls=2), None]


async def test_a_follower_takes_over_from_a_cancelled_leader() -> None:
    model = Gate()
    gateway = Gateway(Models.of(model))
    leader = asyncio.ensure_future(gateway.ask(CALL))
    await model.called.wait()
    follower = asyncio.ensure_future(gateway.ask(CALL))
    await asyncio.sleep(0)
    leader.cancel()
    model.open.set()
    assert (await follower).usage == Usage(calls=1)
    assert model.calls == 2


async def test_recalled_replies_precede_the_cache_for_shared_calls_only() -> None:
    paid = Usage(calls=1, cost_usd=0.5)
    gateway = Gateway(
        Models.of(ScriptedLLM(["asked"])), cache=MemoryReplyCache(), recall=lambda _key: Reply("known", usage=paid)
    )
    alone, shared = await gateway.ask(CALL), await gateway.ask(replace(CALL, shared=True))
    assert (alone.text, shared.text) == ("asked", "known")
    assert (shared.cached, shared.usage, shared.saved) == (True, Usage(), paid)


async def test_errors_are_not_cached() -> None:
    cache = MemoryReplyCache()
    gateway = Gateway(Models.of(ScriptedLLM([ModelError("broken"), "fine"])), cache=cache)
    with pytest.raises(ModelError):
        await gateway.ask(CALL)
    assert (await gateway.ask(CALL)).text == "fine"


class FailsForOddPairs:
    """A user's model that fails for odd pairs: it raises, or does not return a `Reply`."""

    def __init__(self, failing: Callable[[], Any]) -> None:
        self.failing = failing

    def identity(self) -> dict[str, str]:
        return {"model": "sometimes"}

    async def reply(self, call: Call) -> Reply:
        return self.failing() if int(call.pair_id) % 2 else Reply('{"reason": "r", "label": 1}')


def raise_bug() -> Reply:
    raise KeyError("bug")


@pytest.mark.parametrize("failing", [raise_bug, lambda: "text"])
async def test_an_exception_of_a_users_model_ends_one_pair_and_counts_for_an_outage(failing: Any) -> None:
    pairs = [Pair(id=str(number), query=f"q {number}", code="x = 1") for number in range(60)]
    async with Annotator(model=FailsForOddPairs(failing), variant="single_llm") as annotator:
        annotations = [annotation async for annotation in annotator.annotate(pairs)]
        ends = Counter((annotation.label, annotation.error and annotation.error.type) for annotation in annotations)
        assert ends == {(1, None): 30, (None, "ModelError"): 30}
        with pytest.raises(Outage):
            await anext(
                annotation async for annotation in annotator.annotate(pairs[1::2]) if annotation.label is not None
            )


async def test_a_defect_of_a_built_in_model_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeuristicModel, "reply", lambda _self, _call: raise_bug())
    async with Annotator(model="heuristic", variant="single_llm") as annotator:
        with pytest.raises(KeyError):
            await anext(annotator.annotate([Pair(id="1", query="q", code="x = 1")]))


@pytest.mark.parametrize(
    "other",
    [
        Call("judge", (Message("user", "hello!"),), "json"),
        Call("judge", (Message("system", "hello"),), "json"),
        Call("judge", (Message("user", "hello"),), "text"),
        Call("judge", (Message("user", "hello"),), "json", sample=1),
        Call("judge", (Message("user", "hello"),), "json", schema={"type": "object"}),
    ],
)
def test_the_key_depends_on_what_determines_the_reply(other: Call) -> None:
    gateway = Gateway(Models.of(ScriptedLLM([])))
    assert gateway.compute_key(other) != gateway.compute_key(CALL)


def test_the_key_depends_on_the_model_but_not_on_pair_turn_and_variables() -> None:
    first, second = (Gateway(Models.of(ScriptedLLM([], name=name))) for name in ("a", "b"))
    call = Call("judge", CALL.messages, "json", pair_id="7", turn=3, variables={"query": "x"})
    assert first.compute_key(call) == first.compute_key(CALL) != second.compute_key(CALL)


class ByPair(ScriptedLLM):
    """A model whose replies depend on pair, role and turn."""

    by_pair = True

    def __init__(self) -> None:
        super().__init__(lambda call: f"{call.pair_id} {call.role} {call.turn}")


OTHER_CALLS = [replace(CALL, pair_id="7"), replace(CALL, role="screen"), replace(CALL, turn=1)]


async def test_calls_of_different_pairs_roles_or_turns_do_not_share_replies_of_a_by_pair_model() -> None:
    cache = MemoryReplyCache()
    for paid in (1, 0):
        gateway = Gateway(Models.of(ByPair()), cache=cache)
        replies = await asyncio.gather(*(gateway.ask(call) for call in (CALL, *OTHER_CALLS)))
        assert [reply.text for reply in replies] == [" judge 0", "7 judge 0", " screen 0", " judge 1"]
        assert [reply.usage.calls for reply in replies] == [paid] * 4


async def test_shared_calls_have_one_reply_even_by_a_by_pair_model() -> None:
    gateway = Gateway(Models.of(ByPair()), cache=MemoryReplyCache())
    calls = [replace(CALL, shared=True, pair_id=pair_id) for pair_id in "123"]
    assert [(await gateway.ask(call)).text for call in calls] == ["1 judge 0"] * 3
