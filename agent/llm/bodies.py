"""Reads bodies of completions: answers of a server, or lines of a batch's output."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agent.llm.base import Message, Reply
from agent.llm.failures import Failure, for_message, judged
from agent.llm.langchain import count, storable
from agent.types import Usage

_ERRORS = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
_CHARACTERS_PER_TOKEN = 8
_WORD = re.compile(r"\w+")


def parse_reply(content: bytes, secrets: Iterable[str]) -> Reply:
    """Return the reply in a response's content; its usage has no price yet.

    Raises:
        Failure: there is none; its text is without the secrets.
    """
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        what = f"no JSON ({content[:60].decode(errors='replace')!r}...)" if content else "an empty body"
        raise Failure(f"answered with {for_message(what, secrets)}", usage=Usage(calls=1)) from None
    return reply_in(body, secrets)


def reply_in(value: Any, secrets: Iterable[str]) -> Reply:
    """Return the reply in a parsed body; its usage has no price yet, and `raw` is the body as any writer takes it.

    Raises:
        Failure: there is none; its text is without the secrets.
    """
    try:
        body = storable(value)
    except _ERRORS as error:
        why = f"answered with JSON that cannot be kept ({type(error).__name__})"
        raise Failure(why, usage=Usage(calls=1)) from None
    if not isinstance(body, dict):
        raise Failure("answered with JSON that is no object", usage=Usage(calls=1))
    usage = usage_of(body.get("usage"))
    if problem := body.get("error"):
        details = problem if isinstance(problem, Mapping) else {"message": str(problem)}
        code = details.get("code")
        raise judged(code if isinstance(code, int) else 500, details, secrets, usage=usage)
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise Failure("answered with a body without a reply in it", usage=usage)
    return Reply(
        text=_text(message.get("content")) or _text(message.get("refusal")),
        usage=usage,
        model=_name(body.get("model")) or "",
        fingerprint=_name(body.get("system_fingerprint")),
        finish_reason=_name(choice.get("finish_reason")),
        reasoning=_text(message.get("reasoning_content")) or _text(message.get("reasoning")) or None,
        raw=body,
    )


def usage_of(value: Any) -> Usage:
    """Return one call's tokens from a `usage` object; what cannot be read counts as 0, no more is cached than read."""
    usage = value if isinstance(value, Mapping) else {}
    read, cached = _input(usage)
    return Usage(
        calls=1,
        input_tokens=read,
        cached_input_tokens=min(cached, read),
        output_tokens=count(usage.get("completion_tokens")),
        reasoning_tokens=count(_part(usage, "completion_tokens_details").get("reasoning_tokens")),
    )


def _input(usage: Mapping[str, Any]) -> tuple[int, int]:
    """Return the tokens of a prompt and those of them that were cached, as a server counts them."""
    cached = count(_part(usage, "prompt_tokens_details").get("cached_tokens"))
    return count(usage.get("prompt_tokens")), cached or count(usage.get("prompt_cache_hit_tokens"))


def _part(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = usage.get(name)
    return part if isinstance(part, Mapping) else {}


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "".join(_text(part.get("text")) for part in value if isinstance(part, dict))
    return value if isinstance(value, str) else ""


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def truncated(messages: Sequence[Message], reply: Reply) -> bool:
    """Say whether the server read so few tokens that it cannot have read all messages.

    Ordinary text has 3 to 5 characters per token. Runs of blanks and words of any length may be a single token, so
    blanks do not count, and there are never more tokens needed than words. Servers that count no tokens are given the
    benefit of the doubt. Some servers do not count cached tokens among those that they read.
    """
    usage = reply.raw.get("usage")
    read, cached = _input(usage if isinstance(usage, Mapping) else {})
    tokens = read + cached if cached > read else read
    if not 0 < tokens < sum(len(message.content) for message in messages) // _CHARACTERS_PER_TOKEN:
        return False
    words = sum(1 for message in messages for _ in _WORD.finditer(message.content))
    characters = sum(len(part) for message in messages for part in message.content.split())
    return tokens < min(words, characters // _CHARACTERS_PER_TOKEN)
