"""What the body of a completion says, whichever way it came: as an answer, or in a line of a batch's output."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage

from agent.llm.base import Message
from agent.llm.headers import limits_of
from agent.llm.langchain import count, storable
from agent.types import Usage

_ERRORS = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
_CHARACTERS_PER_TOKEN = 8
_WORD = re.compile(r"\w+")


class UnusableBody(ValueError):
    """A body that holds no completion; `usage` is what it says it cost, `error` the error object it carries."""

    def __init__(self, message: str, *, usage: Usage | None = None, error: Mapping[str, Any] | None = None) -> None:
        self.usage = usage or Usage(calls=1)
        self.error = error
        super().__init__(message)


def checked(read: Callable[[], Any]) -> dict[str, Any]:
    """Return the body that `read` gives, as every JSON writer takes it.

    Raises:
        UnusableBody: it is no object, cannot be kept, or is an error in place of a reply.
    """
    try:
        body = storable(read())
    except _ERRORS as error:
        raise UnusableBody(f"JSON that cannot be kept ({type(error).__name__})") from error
    if not isinstance(body, dict):
        raise UnusableBody("JSON that is no object")
    if body.get("error"):
        details = body["error"] if isinstance(body["error"], Mapping) else {"message": str(body["error"])}
        usage = usage_of(body.get("usage"))
        raise UnusableBody(f"an error in place of a reply: {details.get('message')}", usage=usage, error=details)
    return body


def message_in(content: bytes, headers: Mapping[str, str]) -> AIMessage:
    """Return the message of a response, with its body and what its headers say of limits.

    Raises:
        UnusableBody: there is none.
    """
    if not content:
        raise UnusableBody("an empty body")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UnusableBody(f"no JSON ({content[:60].decode(errors='replace')!r}...)") from error
    message = message_of(checked(lambda: found))
    message.response_metadata["limits"] = limits_of(headers)
    return message


def message_of(body: Mapping[str, Any]) -> AIMessage:
    """Return the message in a body.

    Raises:
        UnusableBody: there is none.
    """
    choices, usage = body.get("choices"), usage_of(body.get("usage"))
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise UnusableBody("a body without a reply in it", usage=usage)
    reasoning = _text(message.get("reasoning_content")) or _text(message.get("reasoning"))
    return AIMessage(
        content=_text(message.get("content")) or _text(message.get("refusal")),
        additional_kwargs={"reasoning_content": reasoning} if reasoning else {},
        response_metadata={
            "model_name": _name(body.get("model")),
            "system_fingerprint": _name(body.get("system_fingerprint")),
            "finish_reason": _name(choice.get("finish_reason")),
            "body": body,
        },
        usage_metadata={
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
            "input_token_details": {"cache_read": usage.cached_input_tokens},
            "output_token_details": {"reasoning": usage.reasoning_tokens},
        },
    )


def usage_of(found: Any) -> Usage:
    """Return one call's tokens from a `usage` object; what cannot be read counts as 0, no more is cached than read."""
    usage = found if isinstance(found, Mapping) else {}
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


def prompt_tokens_of(found: Any) -> int:
    """Return all tokens that were read, those of the cache, too, where the server counts them apart."""
    read, cached = _input(found if isinstance(found, Mapping) else {})
    return read + cached if cached > read else read


def _part(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = usage.get(name)
    return found if isinstance(found, Mapping) else {}


def _text(found: Any) -> str:
    if isinstance(found, list):
        return "".join(_text(part.get("text")) for part in found if isinstance(part, dict))
    return found if isinstance(found, str) else ""


def _name(found: Any) -> str | None:
    return found if isinstance(found, str) else None


def truncated(messages: Sequence[Message], prompt_tokens: int) -> bool:
    """Say whether the server read so few tokens that it cannot have read all messages.

    Ordinary text has 3 to 5 characters per token. Runs of blanks and words of any length may be a single token, so
    blanks do not count, and there are never more tokens needed than words. Servers that count no tokens are given the
    benefit of the doubt.
    """
    if not 0 < prompt_tokens < sum(len(message.content) for message in messages) // _CHARACTERS_PER_TOKEN:
        return False
    words = sum(1 for message in messages for _ in _WORD.finditer(message.content))
    characters = sum(len(part) for message in messages for part in message.content.split())
    return prompt_tokens < min(words, characters // _CHARACTERS_PER_TOKEN)
