"""A run settles to what a real HTTP server takes, and every pair is annotated."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest

from agent import Annotator, Pair, ScriptedSandbox
from agent.config import ModelConfig
from agent.llm.openai import OpenAIModel
from tests.llm.server import Answer, ChatServer, Request, fails, says, slow
from tests.llm.test_openai import call

pytestmark = pytest.mark.slow
VERDICT = says(json.dumps({"reason": "It sorts.", "verdict": "non_match"}), prompt_tokens=2000)


class Load:
    """Counts the requests in flight of a server, and those that it refused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = self.most = self.refused = 0

    @contextmanager
    def one(self) -> Iterator[int]:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
            number = self.now
        try:
            yield number
        finally:
            with self._lock:
                self.now -= 1

    def refuse(self, headers: dict[str, str] | None = None) -> Answer:
        with self._lock:
            self.refused += 1
        return fails(429, "Rate limit reached", code="rate_limit_exceeded", headers=headers)


async def labels(server: ChatServer, pairs: int) -> list[int | None]:
    """Annotate so many pairs, each settled by the screener."""
    model = OpenAIModel(ModelConfig(name="m", base_url=server.url, attempts=20))
    given = [
        Pair(id=str(each), query=f"reverse list {each}", code="def f(x):\n    return x\n") for each in range(pairs)
    ]
    async with Annotator(model=model, sandbox=ScriptedSandbox()) as annotator:
        return [annotation.label async for annotation in annotator.annotate(given)]


async def test_a_server_that_refuses_above_a_number_in_flight_is_asked_about_so_much() -> None:
    load = Load()

    def respond(_request: Request) -> Answer:
        with load.one() as number:
            if number > 12:
                return load.refuse()
            time.sleep(0.1)
            return VERDICT

    with ChatServer(respond) as server:
        assert await labels(server, 300) == [0] * 300
    assert load.refused <= 30
    assert load.most <= 24


@pytest.mark.parametrize("on_replies", [True, False])
async def test_what_headers_say_is_kept_whether_they_come_with_replies_or_with_refusals(on_replies: bool) -> None:
    load, calls, window = Load(), 40, [0.0, 0.0]
    lock = threading.Lock()

    def respond(_request: Request) -> Answer:
        with lock:
            now = time.monotonic()
            if now >= window[0] + 1:
                window[:] = [now, calls]
            reset = f"{window[0] + 1 - now:.3f}s"
            left = window[1] = window[1] - 1
        values = {"limit": calls, "remaining": max(0, int(left)), "reset": reset}
        headers = {f"X-RateLimit-{name}-Requests": str(value) for name, value in values.items()}
        if left < 0:
            return load.refuse(headers)
        return slow(0.02, Answer(VERDICT.body, headers=headers if on_replies else {}))

    with ChatServer(respond) as server:
        assert await labels(server, 200) == [0] * 200
    assert load.refused <= (20 if on_replies else 60)


@pytest.mark.parametrize("own_client", [False, True])
async def test_headers_of_limits_come_with_the_reply_whoever_made_the_client(own_client: bool) -> None:

    headers = {"x-ratelimit-limit-tokens": "9", "x-other": "1"}
    async with httpx2.AsyncClient() as client:
        with ChatServer(Answer(VERDICT.body, headers=headers)) as server:
            config = ModelConfig(name="m", base_url=server.url)
            model = OpenAIModel(config, http_client=client if own_client else None)
            reply = await model.reply(call())
            await model.aclose()
    assert reply.limits == {"x-ratelimit-limit-tokens": "9"}
