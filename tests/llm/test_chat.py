"""Arbitrary bodies are parsed as replies or failures."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.llm.chat import extract_reply, parse_reply, parse_usage
from agent.llm.failures import Failure
from agent.llm.langchain import parse_count
from tests.llm.server import says

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None))
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
MESSAGES = st.fixed_dictionaries({}, optional={"content": JSON, "refusal": JSON, "reasoning_content": JSON})
CHOICES = st.lists(st.fixed_dictionaries({}, optional={"message": MESSAGES | JSON, "finish_reason": JSON}), max_size=2)
BODIES = st.fixed_dictionaries(
    {}, optional={"choices": CHOICES | JSON, "usage": JSON, "model": JSON, "system_fingerprint": JSON, "error": JSON}
)


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
