"""A prompt that a server did not read completely is a typed error, whichever client sent it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config import ModelConfig
from agent.errors import PromptTruncated
from agent.llm.base import Call, Message, Reply, ScriptedLLM
from agent.llm.gateway import Gateway
from agent.llm.langchain import LangChainModel
from agent.llm.models import Models
from agent.llm.openai import OpenAIModel
from agent.llm.truncation import find_truncation, is_truncated
from agent.runs.store.cache import SqliteReplyCache
from agent.types import Usage
from tests.llm.families import FAMILIES, says_in_protocol
from tests.llm.server import ChatServer

PROMPT = "def add(left, right):  # add two numbers\n    return left + right\n" * 600
CALL = Call("screen", (Message("user", PROMPT),))


@pytest.mark.parametrize("client", ["ours", *FAMILIES])
async def test_a_truncated_prompt_is_a_billed_error_through_every_client(client: str) -> None:
    with ChatServer(lambda request: says_in_protocol(request, "match", 2048)) as server:
        ours = OpenAIModel(ModelConfig(name="m", base_url=server.url))
        model = ours if client == "ours" else LangChainModel(FAMILIES[client](server))
        with pytest.raises(PromptTruncated, match="2,048 tokens") as caught:
            await Gateway(Models.of(model)).ask(CALL)
        assert (caught.value.usage.input_tokens, len(server.requests)) == (2048, 1)


@pytest.mark.parametrize("prepaid", [True, False])
async def test_a_truncated_reply_of_a_batch_is_an_error_and_leaves_the_cache(prepaid: bool, tmp_path: Path) -> None:
    usage, raw = Usage(calls=1, input_tokens=2048), {"usage": {"prompt_tokens": 2048}}
    with SqliteReplyCache(tmp_path / "cache.sqlite") as cache:
        gateway = Gateway(Models.of(ScriptedLLM(["whole"])), cache=cache)
        cache.put(gateway.compute_key(CALL), Reply("cut", usage, raw=raw, prepaid=prepaid))
        with pytest.raises(PromptTruncated) as caught:
            await gateway.ask(CALL)
        assert caught.value.usage == (usage if prepaid else Usage())
        assert (await gateway.ask(CALL)).text == "whole"


@pytest.mark.parametrize(
    ("prompt", "usage"),
    [
        (PROMPT, {"prompt_tokens": 0}),
        (PROMPT, {"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": 9_000}}),
        (PROMPT, {}),
        ("short", {"prompt_tokens": 1}),
        (" " * 100_000, {"prompt_tokens": 800}),
        ("internationalization " * 2_000, {"prompt_tokens": 2_100}),
    ],
)
def test_a_complete_prompt_is_no_error(prompt: str, usage: dict[str, Any]) -> None:
    assert find_truncation([Message("user", prompt)], Reply("x", raw={"usage": usage})) is None


@given(st.text(), st.integers(0))
def test_a_prompt_with_a_token_per_eight_characters_is_not_truncated(text: str, more: int) -> None:
    assert not is_truncated([Message("user", text)], len(text) // 8 + more)
