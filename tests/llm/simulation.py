"""Calls through a gateway in simulated time, and servers that reply in simulated time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from agent.config import RunnerConfig
from agent.llm.base import Call, Message, Reply, ScriptedLLM, Wait
from agent.llm.gateway import Gateway
from agent.llm.limits import Limits
from agent.llm.models import Models
from agent.streams import run_concurrently
from agent.types import Usage

Server = Callable[["Traffic"], Awaitable[Reply | Wait]]
PROMPT, OUTPUT = 400, 20
TOKENS = PROMPT // 4 + OUTPUT


@dataclass
class Traffic:
    """The calls that a server received. `starts` are in seconds; `limit` is the limit in flight after each call."""

    random: random.Random
    in_flight: int = 0
    most: int = 0
    refused: int = 0
    starts: list[float] = field(default_factory=list)
    limit: list[int] = field(default_factory=list)

    @property
    def now(self) -> float:
        """The simulated time."""
        return asyncio.get_running_loop().time()


async def make_calls(number: int, config: RunnerConfig, serve: Server, *, seed: int = 1) -> Traffic:
    """Make `number` calls of one role, as many at once as the limits allow."""
    limits, traffic = Limits(config), Traffic(random.Random(seed))
    call = Call("screen", (Message("user", "x" * PROMPT),))

    async def answer(call: Call) -> Reply:
        while isinstance(reply := await attempt(traffic, serve), Wait):
            traffic.refused += 1
            await call.on_wait(reply)
        return reply

    gateway = Gateway(Models.of(ScriptedLLM(answer)), limits=limits)

    async def make_call(number: int) -> None:
        await gateway.ask(call, str(number))
        assert limits.in_flight <= config.llm_calls
        traffic.limit.append(limits.allowed)

    async for _ in run_concurrently(range(number), make_call, concurrency=limits.count_pairs):
        pass
    return traffic


async def attempt(traffic: Traffic, serve: Server) -> Reply | Wait:
    """Call the server once."""
    traffic.in_flight += 1
    traffic.most = max(traffic.most, traffic.in_flight)
    traffic.starts.append(traffic.now)
    try:
        return await serve(traffic)
    finally:
        traffic.in_flight -= 1


def reply(limits: Mapping[str, str] | None = None) -> Reply:
    """Return a reply with the expected usage."""
    return Reply("x", usage=Usage(calls=1, input_tokens=PROMPT // 4, output_tokens=OUTPUT), limits=limits or {})


def server(
    *,
    seconds: float = 1.0,
    spread: float = 0.0,
    most: int | None = None,
    capacity: int | None = None,
    errors: float = 0,
) -> Server:
    """Return a server that replies after about `seconds` (log-normal with `spread`), and slower above its `capacity`.

    It refuses calls if more than `most` are in flight. `errors` is the share of calls that end in another error.
    """

    async def serve(traffic: Traffic) -> Reply | Wait:
        pause = 1 + traffic.random.random()
        if most is not None and traffic.in_flight > most:
            await asyncio.sleep(0.02)
            return Wait("HTTP 429", pause, rate_limited=True)
        if traffic.random.random() < errors:
            await asyncio.sleep(0.3)
            return Wait("HTTP 500", pause)
        load = 1.0 if capacity is None else max(1.0, traffic.in_flight / capacity)
        await asyncio.sleep(seconds * load * traffic.random.lognormvariate(0, spread))
        return reply()

    return serve


class Metered:
    """A server that allows `calls` in each `period` of seconds, reports the limit in headers, and refuses the rest.

    It refills at the end of each period, or evenly if `steady`.
    """

    def __init__(self, calls: int, period: float, *, steady: bool, seconds: float = 0.5) -> None:
        self._calls, self._period, self._steady, self._seconds = calls, period, steady, seconds
        self._remaining, self._since = float(calls), 0.0

    def _refill(self, now: float) -> None:
        if self._steady:
            self._remaining = min(self._calls, self._remaining + (now - self._since) * self._calls / self._period)
            self._since = now
        elif now >= self._since + self._period:
            self._since, self._remaining = now - now % self._period, self._calls

    def _headers(self, now: float) -> dict[str, str]:
        full = (
            (self._calls - self._remaining) * self._period / self._calls
            if self._steady
            else self._since + self._period - now
        )
        names = ("limit", "remaining", "reset")
        values = (str(self._calls), str(int(self._remaining)), f"{full:.3f}s")
        return {f"x-ratelimit-{name}-requests": value for name, value in zip(names, values, strict=True)}

    async def __call__(self, traffic: Traffic) -> Reply | Wait:
        """Reply, or refuse the call."""
        self._refill(traffic.now)
        if self._remaining < 1:
            headers = self._headers(traffic.now)
            await asyncio.sleep(0.01)
            return Wait("HTTP 429", 1 + traffic.random.random(), rate_limited=True, limits=headers)
        self._remaining -= 1
        answer = partial(reply, self._headers(traffic.now))
        await asyncio.sleep(self._seconds)
        return answer()


class LiteLLM(Metered):
    """The proxy of LiteLLM with an `rpm` limit.

    Its headers have no reset. A refusal has no such headers, and requests a wait of a minute.
    """

    def __init__(self, calls: int) -> None:
        super().__init__(calls, 60.0, steady=False)

    def _headers(self, now: float) -> dict[str, str]:
        return {name: value for name, value in super()._headers(now).items() if "reset" not in name}

    async def __call__(self, traffic: Traffic) -> Reply | Wait:
        """Reply, or refuse the call."""
        reply = await super().__call__(traffic)
        return replace(reply, seconds=59.0 + reply.seconds, limits={}) if isinstance(reply, Wait) else reply
