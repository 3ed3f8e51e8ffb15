"""Detection of prompts that a model server truncated silently, as Ollama does at its context limit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent.errors import PromptTruncated
from agent.llm.base import Message, Reply
from agent.llm.langchain import parse_count

_CHARACTERS_PER_TOKEN = 8
_WORD = re.compile(r"\w+")


def find_truncation(messages: Sequence[Message], reply: Reply) -> PromptTruncated | None:
    """Return an error if the token counts in a reply's raw body show that the server truncated the prompt."""
    usage = get_mapping(reply.raw, "usage") or get_mapping(reply.raw, "usage_metadata")  # the latter from LangChain
    tokens, _ = count_input_tokens(usage)
    if not tokens or not is_truncated(messages, tokens):
        return None
    place = f" at {reply.address}" if reply.address else ""
    return PromptTruncated(
        f"the model server{place} read only {tokens:,} tokens of a longer prompt: its context window for "
        f"{reply.model!r} is too small. Increase the window (Ollama: num_ctx)",
        usage=reply.usage,
    )


def is_truncated(messages: Sequence[Message], tokens: int) -> bool:
    """Return whether `tokens` are too few to have read all messages.

    Ordinary text has 3 to 5 characters per token. A run of blanks, or a word of any length, may be a single token.
    Blanks are therefore ignored, and no more tokens are expected than there are words.
    """
    if tokens >= sum(len(message.content) for message in messages) // _CHARACTERS_PER_TOKEN:
        return False
    words = sum(1 for message in messages for _ in _WORD.finditer(message.content))
    characters = sum(len(part) for message in messages for part in message.content.split())
    return tokens < min(words, characters // _CHARACTERS_PER_TOKEN)


def count_input_tokens(usage: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of prompt tokens, including cached ones, and the number of cached tokens.

    Some servers exclude cached tokens from the prompt tokens. If there are more cached tokens than prompt tokens, the
    two numbers are therefore added.
    """
    cached = (
        parse_count(get_mapping(usage, "prompt_tokens_details").get("cached_tokens"))
        or parse_count(usage.get("prompt_cache_hit_tokens"))
        or parse_count(get_mapping(usage, "input_token_details").get("cache_read"))
    )
    read = parse_count(usage.get("prompt_tokens")) or parse_count(usage.get("input_tokens"))
    return (read + cached if cached > read else read), cached


def get_mapping(parent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the object under a key, or an empty mapping if there is none."""
    part = parent.get(name)
    return part if isinstance(part, Mapping) else {}
