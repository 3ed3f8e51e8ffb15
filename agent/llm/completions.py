"""Reads the body of a chat completion as it came, whatever a server made of the protocol."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agent.llm.base import Message
from agent.prompt_text import sound
from agent.types import Usage

_CHARACTERS_PER_TOKEN = 8
_WORD = re.compile(r"\w+")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_MAX_TOKENS = 10**12
_DEEPEST = 100
_LONGEST_INTEGER = 18


class UnusableBody(ValueError):
    """A body that holds no completion; `usage` is what it says it cost, `error` the error object it carries."""

    def __init__(self, message: str, *, usage: Usage | None = None, error: Mapping[str, Any] | None = None) -> None:
        self.usage = usage or Usage(calls=1)
        self.error = error
        super().__init__(message)


@dataclass(frozen=True)
class Completion:
    """What a body says. `usage` has no cost; `text` is empty when the model wrote nothing.

    `prompt_tokens` are all those that were read, of the cache, too, where the server counts them apart.
    """

    text: str
    usage: Usage
    prompt_tokens: int
    model: str
    fingerprint: str | None
    finish_reason: str | None
    reasoning: str | None
    raw: Mapping[str, Any]


def read_completion(body: bytes) -> Completion:
    """Read a body.

    Raises:
        UnusableBody: it is no JSON object with a choice that has a message.
    """
    raw = _parse(body)
    usage = read_usage(raw.get("usage"))
    error = raw.get("error")
    if error:
        details = error if isinstance(error, Mapping) else {"message": str(error)}
        raise UnusableBody(f"an error in place of a reply: {details.get('message')}", usage=usage, error=details)
    choices = raw.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise UnusableBody("a body without a reply in it", usage=usage)
    return Completion(
        text=_text(message.get("content")) or _text(message.get("refusal")),
        usage=usage,
        prompt_tokens=_prompt_tokens(raw.get("usage")),
        model=_name(raw.get("model")) or "",
        fingerprint=_name(raw.get("system_fingerprint")),
        finish_reason=_name(choice.get("finish_reason")),
        reasoning=_text(message.get("reasoning_content")) or _text(message.get("reasoning")) or None,
        raw=raw,
    )


def read_usage(found: Any) -> Usage:
    """Return one call's tokens from a `usage` object; what cannot be read counts as 0, no more is cached than read."""
    usage = found if isinstance(found, Mapping) else {}
    read, cached = _input(usage)
    return Usage(
        calls=1,
        input_tokens=read,
        cached_input_tokens=min(cached, read),
        output_tokens=count(usage.get("completion_tokens")),
        reasoning_tokens=count(_details(usage, "completion_tokens_details").get("reasoning_tokens")),
    )


def _prompt_tokens(found: Any) -> int:
    read, cached = _input(found if isinstance(found, Mapping) else {})
    return read + cached if cached > read else read


def _input(usage: Mapping[str, Any]) -> tuple[int, int]:
    """Return the tokens of a prompt and those of them that were cached, as a server told them."""
    cached = count(_details(usage, "prompt_tokens_details").get("cached_tokens"))
    return count(usage.get("prompt_tokens")), cached or count(usage.get("prompt_cache_hit_tokens"))


def count(found: Any) -> int:
    """Return a number of tokens as a server told it; what cannot be one is 0."""
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= _MAX_TOKENS:
        return 0
    return int(found)


def fewest_tokens(messages: Iterable[Message]) -> int:
    """Return a number of tokens that no tokenizer goes below for these messages, with a wide margin.

    Ordinary text has 3 to 5 characters per token. Runs of blanks and words of any length may be a single token, so
    blanks do not count, and there are never more than words.
    """
    words = characters = 0
    for message in messages:
        words += sum(1 for _ in _WORD.finditer(message.content))
        characters += sum(len(part) for part in message.content.split())
    return min(words, characters // _CHARACTERS_PER_TOKEN)


def truncated(messages: Iterable[Message], prompt_tokens: int) -> bool:
    """Say whether the server read so few tokens that it cannot have read all messages.

    Servers that count no tokens are given the benefit of the doubt.
    """
    return 0 < prompt_tokens < fewest_tokens(messages)


def _parse(body: bytes) -> dict[str, Any]:
    try:
        raw = _storable(json.loads(body, parse_constant=_refuse, parse_int=_integer))
    except (ValueError, RecursionError) as error:
        start = sound(body[:60].decode("utf-8", "replace"))
        what = f"no JSON ({start!r}...)" if body.strip() else "an empty body"
        raise UnusableBody(what) from error
    if not isinstance(raw, dict):
        raise UnusableBody("JSON that is no object")
    return raw


def _storable(value: Any, depth: int = 0) -> Any:
    """Return the value such that every JSON writer takes it: no lone surrogates, not nested without end."""
    if depth > _DEEPEST:
        raise RecursionError("nested too deeply")
    if isinstance(value, str):
        return sound(value) if _SURROGATE.search(value) else value
    if isinstance(value, list):
        return [_storable(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {_storable(key): _storable(item, depth + 1) for key, item in value.items()}
    return value


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _LONGEST_INTEGER else float(digits)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _text(found: Any) -> str:
    if isinstance(found, list):
        return "".join(_text(part.get("text")) for part in found if isinstance(part, dict))
    return found if isinstance(found, str) else ""


def _name(found: Any) -> str | None:
    return found if isinstance(found, str) else None


def _details(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = usage.get(name)
    return found if isinstance(found, Mapping) else {}
