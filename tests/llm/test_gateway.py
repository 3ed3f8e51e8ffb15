"""Calls go out once: equal ones share a reply, stored ones are not paid again, errors are never kept."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agent import Annotator
from agent.errors import ModelError, Outage
from agent.history import Event, Exchange, Execution, History
from agent.llm.base import Call, Message, Reply, ScriptedLLM
from agent.llm.gateway import CircuitBreaker, Gateway, MemoryReplyCache
from agent.llm.heuristic import HeuristicModel
from agent.llm.models import Models
from agent.types import Annotation, ErrorInfo, Pair, Status, TestReport, Usage

CALL = Call("judge", (Message("user", "hello"),), "json")


class Gate:
    """A model that answers when it is let, and counts its calls."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.asked = asyncio.Event()
        self.calls = 0
        self.error: ModelError | None = None

    def identity(self) -> dict[str, str]:
        return {"model": "gate"}

    async def reply(self, call: Call) -> Reply:
        self.calls += 1
        self.asked.set()
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return Reply(call.reply, usage=Usage(calls=1))


async def test_equal_calls_in_flight_share_one_reply() -> None:
    model = Gate()
    gateway = Gateway(Models.of(model))
    waiting = [asyncio.ensure_future(gateway.ask(CALL)) for _ in range(3)]
    await model.asked.wait()
    model.open.set()
    replies = await asyncio.gather(*waiting)
    assert model.calls == 1
    assert sorted(reply.usage.calls for reply in replies) == [0, 0, 1]
    assert [reply.cached for reply in replies].count(True) == 2


async def test_a_stored_reply_is_not_paid_again_and_says_what_it_cost_and_how_long_it_took() -> None:
    cache, paid = MemoryReplyCache(), Usage(calls=2, input_tokens=9, cost_usd=0.5)
    first = await Gateway(Models.of(ScriptedLLM([Reply("hi", usage=paid)])), cache=cache).ask(CALL)
    again = await Gateway(Models.of(ScriptedLLM([])), cache=cache).ask(CALL)
    assert (first.text, first.cached, first.usage, first.saved) == ("hi", False, paid, Usage())
    assert (again.text, again.cached, again.usage, again.saved) == ("hi", True, Usage(), paid)
    assert again.seconds == first.seconds is not None


async def test_followers_share_the_error_and_pay_nothing_for_it() -> None:
    model = Gate()
    model.error = ModelError("broken", usage=Usage(calls=2))
    gateway = Gateway(Models.of(model))
    waiting = [asyncio.ensure_future(gateway.ask(CALL)) for _ in range(2)]
    await model.asked.wait()
    model.open.set()
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(error) for error in errors] == ["broken", "broken"]
    assert [getattr(error, "usage", None) for error in errors] == [Usage(calls=2), None]


async def test_when_the_first_is_cancelled_another_takes_over() -> None:
    model = Gate()
    gateway = Gateway(Models.of(model))
    leader = asyncio.ensure_future(gateway.ask(CALL))
    await model.asked.wait()
    follower = asyncio.ensure_future(gateway.ask(CALL))
    await asyncio.sleep(0)
    leader.cancel()
    model.open.set()
    assert (await follower).usage == Usage(calls=1)
    assert model.calls == 2


async def test_what_the_run_went_by_comes_before_the_cache_for_shared_calls_alone() -> None:
    paid = Usage(calls=1, cost_usd=0.5)
    gateway = Gateway(
        Models.of(ScriptedLLM(["asked"])), cache=MemoryReplyCache(), recall=lambda _key: Reply("known", usage=paid)
    )
    alone, shared = await gateway.ask(CALL), await gateway.ask(replace(CALL, shared=True))
    assert (alone.text, shared.text) == ("asked", "known")
    assert (shared.cached, shared.usage, shared.saved) == (True, Usage(), paid)


async def test_errors_are_not_stored() -> None:
    cache = MemoryReplyCache()
    gateway = Gateway(Models.of(ScriptedLLM([ModelError("broken"), "fine"])), cache=cache)
    with pytest.raises(ModelError):
        await gateway.ask(CALL)
    assert (await gateway.ask(CALL)).text == "fine"


class Sometimes:
    """A user's model: raises for odd pairs, or returns no reply; answers the others."""

    def __init__(self, failing: Callable[[], Any]) -> None:
        self.failing = failing

    def identity(self) -> dict[str, str]:
        return {"model": "sometimes"}

    async def reply(self, call: Call) -> Reply:
        return self.failing() if int(call.pair_id) % 2 else Reply('{"reason": "r", "label": 1}')


def bug() -> Reply:
    raise KeyError("bug")


@pytest.mark.parametrize("failing", [bug, lambda: "text"])
async def test_what_a_users_model_raises_ends_its_pair_alone_and_counts_for_an_outage(failing: Any) -> None:
    pairs = [Pair(id=str(number), query=f"q {number}", code="x = 1") for number in range(60)]
    async with Annotator(model=Sometimes(failing), variant="single_llm") as annotator:
        annotations = [each async for each in annotator.annotate(pairs)]
        ends = Counter((each.label, each.error and each.error.type) for each in annotations)
        assert ends == {(1, None): 30, (None, "ModelError"): 30}
        with pytest.raises(Outage):
            await anext(each async for each in annotator.annotate(pairs[1::2]) if each.label is not None)


async def test_a_defect_of_a_built_in_model_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeuristicModel, "reply", lambda _self, _call: bug())
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
def test_what_decides_a_reply_is_in_its_key(other: Call) -> None:
    gateway = Gateway(Models.of(ScriptedLLM([])))
    assert gateway.compute_key(other) != gateway.compute_key(CALL)


def test_what_only_names_a_call_is_not_in_its_key_and_another_model_has_other_keys() -> None:
    one, other = (Gateway(Models.of(ScriptedLLM([], name=name))) for name in ("a", "b"))
    named = Call("judge", CALL.messages, "json", pair_id="7", turn=3, variables={"query": "x"})
    assert one.compute_key(named) == one.compute_key(CALL) != other.compute_key(CALL)


class ByPair(ScriptedLLM):
    """A model that answers each pair, role and turn in its own way."""

    by_pair = True

    def __init__(self) -> None:
        super().__init__(lambda call: f"{call.pair_id} {call.role} {call.turn}")


OTHERS = [replace(CALL, pair_id="7"), replace(CALL, role="screen"), replace(CALL, turn=1)]


async def test_a_model_that_answers_by_pair_gives_no_reply_to_another_call() -> None:
    cache = MemoryReplyCache()
    for paid in (1, 0):
        gateway = Gateway(Models.of(ByPair()), cache=cache)
        replies = await asyncio.gather(*(gateway.ask(call) for call in (CALL, *OTHERS)))
        assert [reply.text for reply in replies] == [" judge 0", "7 judge 0", " screen 0", " judge 1"]
        assert [reply.usage.calls for reply in replies] == [paid] * 4


async def test_what_pairs_share_has_one_answer_whatever_the_model() -> None:
    gateway = Gateway(Models.of(ByPair()), cache=MemoryReplyCache())
    calls = [replace(CALL, shared=True, pair_id=each) for each in "123"]
    assert [(await gateway.ask(call)).text for call in calls] == ["1 judge 0"] * 3


def ended(error: str | None, *roles: str, executed: bool = False) -> tuple[Annotation, History]:
    """Return a pair that asked in these roles, the last of which an error ended."""
    pair = Pair(id="1", query="q", code="c")
    info = None if error is None else ErrorInfo(type=error, message="HTTP 503")
    annotation = Annotation(id="1", input_sha256="", label=None, error=info)
    events: list[Event] = [Exchange(role=role, key="", messages=(), reply="") for role in roles]
    if executed:
        events.append(Execution(program=0, report=TestReport(status=Status.PASSED)))
    return annotation, History(pair=pair, events=tuple(events))


class TestCircuitBreaker:
    @pytest.mark.parametrize("error", ["ModelUnavailable", "ModelTimeout", "ReplyError", "PairTimeout"])
    def test_a_role_that_always_fails_ends_the_run(self, error: str) -> None:
        breaker = CircuitBreaker()
        for _ in range(19):
            breaker.count(*ended(error, "screen", "judge"))
        with pytest.raises(Outage, match=r"HTTP 503. So ended 20 of the last 20 pairs that came to 'judge' \(" + error):
            breaker.count(*ended(error, "screen", "judge"))

    def test_so_do_sandboxes_that_always_fail(self) -> None:
        breaker = CircuitBreaker()
        for _ in range(19):
            breaker.count(*ended("EngineLost", "screen"))
        with pytest.raises(Outage, match="'sandbox'"):
            breaker.count(*ended("EngineLost", "screen"))

    def test_four_of_five_are_too_many_and_three_are_not(self) -> None:
        breaker = CircuitBreaker()
        for number in range(200):
            breaker.count(*ended("ReplyError" if number % 4 else None, "judge"))
        for _ in range(16):
            breaker.count(*ended("ReplyError", "judge"))
        with pytest.raises(Outage, match="80 of the last 100"):
            breaker.count(*ended("ReplyError", "judge"))

    def test_pairs_that_came_through_in_other_roles_do_not_hide_it(self) -> None:
        breaker = CircuitBreaker()
        for _ in range(19):
            breaker.count(*ended("ModelUnavailable", "screen", "judge"))
            breaker.count(*ended(None, "screen"))
        with pytest.raises(Outage, match="20 of the last 20 pairs that came to 'judge'"):
            breaker.count(*ended("ModelUnavailable", "screen", "judge"))

    def test_different_errors_are_counted_apart_and_those_of_the_pair_itself_not_at_all(self) -> None:
        breaker = CircuitBreaker()
        for number in range(300):
            kinds = ("ReplyError", "ModelUnavailable", "SnippetTooLarge", "UnsupportedLanguage")
            breaker.count(*ended(kinds[number % 4], "judge", executed=True))
