"""What the subclass of `ChatOpenAI` relies on, and what it makes of any body."""

from __future__ import annotations

import json
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion
from pydantic import SecretStr

from agent.llm.langchain import count
from agent.llm.openai import Chat, UnusableBody, _usage, truncated
from agent.types import Message

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None))
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
MESSAGES = st.fixed_dictionaries({}, optional={"content": JSON, "refusal": JSON, "reasoning_content": JSON})
CHOICES = st.lists(st.fixed_dictionaries({}, optional={"message": MESSAGES | JSON, "finish_reason": JSON}), max_size=2)
BODIES = st.fixed_dictionaries(
    {}, optional={"choices": CHOICES | JSON, "usage": JSON, "model": JSON, "system_fingerprint": JSON, "error": JSON}
)


def chat(url: str = "http://127.0.0.1:9/v1") -> Chat:
    return Chat(model="m", base_url=url, api_key=SecretStr("k"), max_retries=0, use_responses_api=False)


CHAT = chat()


def read(body: dict[str, Any]) -> Any:
    made = ChatCompletion.construct(**json.loads(json.dumps(body)))
    return CHAT._create_chat_result(made).generations[0].message


@given(BODIES)
def test_any_body_is_read_or_refused_and_what_is_kept_can_be_stored(body: dict[str, Any]) -> None:
    try:
        message = read(body)
    except UnusableBody as error:
        str(error).encode()
    else:
        orjson.dumps(message.response_metadata["body"])
        (message.text + message.additional_kwargs.get("reasoning_content", "")).encode()


@given(JSON)
def test_usage_is_never_negative(found: Any) -> None:
    usage = _usage({"prompt_tokens": found, "completion_tokens": found, "prompt_tokens_details": found})
    assert min(usage.input_tokens, usage.output_tokens, usage.cached_input_tokens, count(found)) >= 0


@given(st.integers(0, 100), st.integers(0, 100))
def test_no_more_tokens_are_cached_than_were_read(read_tokens: int, cached: int) -> None:
    usage = _usage({"prompt_tokens": read_tokens, "prompt_tokens_details": {"cached_tokens": cached}})
    assert (usage.input_tokens, usage.cached_input_tokens) == (read_tokens, min(read_tokens, cached))


@given(st.text(), st.integers(0))
def test_no_prompt_is_held_for_truncated_that_has_an_eighth_of_its_characters_in_tokens(text: str, more: int) -> None:
    assert not truncated([Message("user", text)], len(text) // 8 + more)
