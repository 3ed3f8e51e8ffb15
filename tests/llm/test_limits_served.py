"""A run settles to what a real HTTP server takes, and every pair is annotated."""

from __future__ import annotations

import json
import threading
import time

import pytest

from agent import Annotator, Pair, ScriptedSandbox
from agent.config import ModelConfig
from agent.llm.openai import OpenAIModel
from tests.llm.server import Answer, ChatServer, Request, rate_limited, says

PAIRS, TAKEN = 200, 12
VERDICT = says(json.dumps({"reason": "It sorts.", "verdict": "non_match"}), prompt_tokens=2000)


@pytest.mark.slow
async def test_a_server_that_refuses_above_a_number_in_flight_is_asked_about_so_much() -> None:
    places, refused = threading.Semaphore(TAKEN), []

    def respond(request: Request) -> Answer:
        if not places.acquire(blocking=False):
            refused.append(request.number)
            return rate_limited("0.1")
        time.sleep(0.05)
        places.release()
        return VERDICT

    given = [
        Pair(id=str(each), query=f"reverse list {each}", code="def f(x):\n    return x\n") for each in range(PAIRS)
    ]
    with ChatServer(respond) as server:
        model = OpenAIModel(ModelConfig(name="m", base_url=server.url, attempts=20))
        async with Annotator(model=model, sandbox=ScriptedSandbox()) as annotator:
            assert [annotation.label async for annotation in annotator.annotate(given)] == [0] * PAIRS
    assert len(refused) < PAIRS / 2  # sent all at once, most of them would be refused, many times over
