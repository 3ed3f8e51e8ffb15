"""Bodies of any kind are read or refused; nothing in them breaks what comes after."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.llm.completions import UnusableBody, fewest_tokens, read_completion, read_usage
from agent.types import Message
from tests.llm.server import says

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None))
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
MESSAGES = st.fixed_dictionaries({}, optional={"content": JSON, "refusal": JSON, "reasoning_content": JSON})
CHOICES = st.lists(st.fixed_dictionaries({}, optional={"message": MESSAGES | JSON, "finish_reason": JSON}), max_size=2)
BODIES = st.fixed_dictionaries(
    {}, optional={"choices": CHOICES | JSON, "usage": JSON, "model": JSON, "system_fingerprint": JSON, "error": JSON}
)


@given(BODIES.map(lambda body: json.dumps(body).encode()) | st.binary())
def test_any_body_is_read_or_refused_and_what_is_kept_can_be_stored(body: bytes) -> None:
    try:
        completion = read_completion(body)
    except UnusableBody as error:
        usage, text = error.usage, str(error)
    else:
        orjson.dumps(completion.raw)
        usage, text = completion.usage, completion.text + (completion.reasoning or "")
    assert usage.calls == 1
    assert text.encode() is not None


@given(JSON)
def test_usage_is_never_negative(found: Any) -> None:
    usage = read_usage({"prompt_tokens": found, "completion_tokens": found, "prompt_tokens_details": found})
    assert min(usage.input_tokens, usage.output_tokens, usage.cached_input_tokens) >= 0


@given(st.integers(0, 100), st.integers(0, 100))
def test_no_more_tokens_are_cached_than_were_read(read: int, cached: int) -> None:
    usage = read_usage({"prompt_tokens": read, "prompt_tokens_details": {"cached_tokens": cached}})
    assert (usage.input_tokens, usage.cached_input_tokens) == (read, min(read, cached))


@pytest.mark.parametrize("part", ["9" * 5_000, "1" * 400, "-" + "1" * 30, "1e999", "NaN", "Infinity"])
def test_numbers_out_of_range_are_refused_or_stored(part: str) -> None:
    body = says("yes", odd=0).body.replace(b'"odd": 0', f'"odd": {part}'.encode())
    try:
        orjson.dumps(read_completion(body).raw)
    except UnusableBody:
        assert part in ("NaN", "Infinity")


@given(st.text())
def test_an_estimate_of_tokens_is_never_above_an_eighth_of_the_text(text: str) -> None:
    assert fewest_tokens([Message("user", text)]) <= len(text) / 8
