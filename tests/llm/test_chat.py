"""The assumptions of the `ChatOpenAI` subclass, and its parsing of arbitrary bodies."""

from __future__ import annotations

import json
from typing import Any

import openai
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from agent.llm.chat import Chat, extract_reply, parse_reply, parse_usage
from agent.llm.failures import Failure
from agent.llm.langchain import parse_count
from tests.llm.server import Answer, ChatServer, fails, garbage, half_body, says

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None))
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
MESSAGES = st.fixed_dictionaries({}, optional={"content": JSON, "refusal": JSON, "reasoning_content": JSON})
CHOICES = st.lists(st.fixed_dictionaries({}, optional={"message": MESSAGES | JSON, "finish_reason": JSON}), max_size=2)
BODIES = st.fixed_dictionaries(
    {}, optional={"choices": CHOICES | JSON, "usage": JSON, "model": JSON, "system_fingerprint": JSON, "error": JSON}
)


def chat(url: str = "http://127.0.0.1:9/v1") -> Chat:
    return Chat(model="m", base_url=url, api_key=SecretStr("k"), max_retries=0, use_responses_api=False)


class TestContract:
    """What openai returns, and how langchain-openai passes errors on."""

    async def test_the_message_is_returned_unchanged(self) -> None:
        answer = says("yes", reasoning="because", x_unknown={"a": [1, None]})
        with ChatServer(answer) as server:
            message = await chat(server.url).ainvoke("?")
        reply = message.response_metadata["reply"]
        assert (message.text, reply.text, reply.reasoning) == ("yes", "yes", "because")
        assert reply.raw == json.loads(answer.body)

    async def test_an_error_has_its_response(self) -> None:
        answer = fails(429, "slow down", headers={"Retry-After": "7"})
        with ChatServer(answer) as server, pytest.raises(openai.APIStatusError) as caught:
            await chat(server.url).ainvoke("?")
        assert (caught.value.status_code, caught.value.response.headers["retry-after"]) == (429, "7")
        assert caught.value.body == {"message": "slow down", "code": None, "type": None, "param": None}

    @pytest.mark.parametrize("answer", [garbage(), half_body(), Answer(b""), Answer(b"[" * 100_000)])
    async def test_unreadable_json_is_a_failure(self, answer: Answer) -> None:
        with ChatServer(answer) as server, pytest.raises(Failure, match=r"JSON|empty"):
            await chat(server.url).ainvoke("?")


@given(BODIES)
def test_any_body_is_a_storable_reply_or_a_failure(body: dict[str, Any]) -> None:
    try:
        reply = parse_reply(json.dumps(body).encode(), ())
    except Failure as error:
        str(error).encode()
    else:
        orjson.dumps(reply.raw)
        (reply.text + (reply.reasoning or "")).encode()


@given(JSON)
def test_usage_is_never_negative(value: Any) -> None:
    usage = parse_usage({"prompt_tokens": value, "completion_tokens": value, "prompt_tokens_details": value})
    assert min(usage.input_tokens, usage.output_tokens, usage.cached_input_tokens, parse_count(value)) >= 0


@given(st.integers(0, 100), st.integers(0, 100))
def test_cached_tokens_are_part_of_the_input_tokens(read_tokens: int, cached: int) -> None:
    usage = parse_usage({"prompt_tokens": read_tokens, "prompt_tokens_details": {"cached_tokens": cached}})
    total = read_tokens if cached <= read_tokens else read_tokens + cached
    assert (usage.input_tokens, usage.cached_input_tokens) == (total, cached)


@pytest.mark.parametrize("odd", [10**400, -(10**30), float("inf"), float("nan"), "\ud800", [[[[1]]]]])
def test_values_out_of_range_can_be_stored(odd: Any) -> None:
    orjson.dumps(extract_reply({**json.loads(says("yes").body), "odd": odd}, ()).raw)
