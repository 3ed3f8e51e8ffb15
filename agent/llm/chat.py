"""HTTP client for chat servers, and parsing of completions, including those in batch files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import httpx2
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_openai import ChatOpenAI
from pydantic import PrivateAttr

from agent.llm.base import Reply
from agent.llm.failures import Failure, build_failure, parse_status, sanitise
from agent.llm.langchain import as_json_value, parse_count
from agent.llm.limits import select_limits
from agent.llm.truncation import count_input_tokens, get_mapping
from agent.types import Usage

_ERRORS = (ValueError, TypeError, LookupError, AttributeError, RecursionError)


class Chat(ChatOpenAI):
    """A `ChatOpenAI` that parses response bodies itself.

    langchain-openai drops `reasoning_content` and `refusal`, and fails on unexpected usage objects. This class stores
    the `Reply` under the `reply` key of the message's `response_metadata`. It masks `_secrets` in error messages.
    """

    _secrets: set[str] = PrivateAttr(default_factory=set)

    def build_body(self, messages: Any, **parameters: Any) -> dict[str, Any]:
        """Return the body of a request."""
        body = self._get_request_payload(messages, **parameters)
        extra = body.pop("extra_body", None) or {}
        return {**body, **extra}

    def mask_secrets(self, secrets: set[str]) -> None:
        """Mask these strings in error messages."""
        self._secrets = secrets

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:  # noqa: ARG002
        """Send the request without langchain-openai's extra thread and openai's response types, which are slow."""
        response = await self.root_async_client.post(
            "/chat/completions", body=self.build_body(messages, stop=stop, **kwargs), cast_to=httpx2.Response
        )
        reply = replace(parse_reply(response.content, self._secrets), limits=select_limits(response.headers))
        return ChatResult(generations=[ChatGeneration(message=_as_message(reply))])


def _as_message(reply: Reply) -> AIMessage:
    usage = reply.usage
    return AIMessage(
        content=reply.text,
        response_metadata={"model_name": reply.model, "finish_reason": reply.finish_reason, "reply": reply},
        usage_metadata={
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
            "input_token_details": {"cache_read": usage.cached_input_tokens},
            "output_token_details": {"reasoning": usage.reasoning_tokens},
        },
    )


def parse_reply(content: bytes, secrets: Iterable[str]) -> Reply:
    """Parse the content of a response, and return the reply. The reply's usage has no cost yet.

    Raises:
        Failure: the response contains no reply; secrets are masked in the error.
    """
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        body = f"invalid JSON ({content[:60].decode(errors='replace')!r}...)" if content else "an empty body"
        raise Failure(f"returned {sanitise(body, secrets)}", usage=Usage(calls=1)) from None
    return extract_reply(body, secrets)


def extract_reply(value: Any, secrets: Iterable[str]) -> Reply:
    """Return the reply in a parsed response body.

    The reply's usage has no cost yet, and `raw` is the body as JSON values.

    Raises:
        Failure: the response contains no reply; secrets are masked in the error.
    """
    try:
        body = as_json_value(value)
    except _ERRORS as error:
        raise Failure(f"returned JSON that cannot be stored ({type(error).__name__})", usage=Usage(calls=1)) from None
    if not isinstance(body, dict):
        raise Failure("returned JSON that is not an object", usage=Usage(calls=1))
    usage = parse_usage(body.get("usage"))
    if problem := body.get("error"):
        details = problem if isinstance(problem, Mapping) else {"message": str(problem)}
        raise build_failure(parse_status(details.get("code")), details, secrets, usage=usage)
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise Failure("returned a body that contains no reply", usage=usage)
    text, refusal = _join_text(message.get("content")), _join_text(message.get("refusal"))
    return Reply(
        text=text or refusal,
        usage=usage,
        model=_as_name(body.get("model")) or "",
        fingerprint=_as_name(body.get("system_fingerprint")),
        finish_reason="refusal" if refusal and not text else _as_name(choice.get("finish_reason")),
        reasoning=_join_text(message.get("reasoning_content")) or _join_text(message.get("reasoning")) or None,
        raw=body,
    )


def parse_usage(value: Any) -> Usage:
    """Parse a call's usage from a response's `usage` object.

    Invalid counts become 0.
    """
    usage = value if isinstance(value, Mapping) else {}
    read, cached = count_input_tokens(usage)
    return Usage(
        calls=1,
        input_tokens=read,
        cached_input_tokens=cached,
        output_tokens=parse_count(usage.get("completion_tokens")),
        reasoning_tokens=parse_count(get_mapping(usage, "completion_tokens_details").get("reasoning_tokens")),
    )


def _join_text(value: Any) -> str:
    if isinstance(value, list):
        return "".join(_join_text(part.get("text")) for part in value if isinstance(part, dict))
    return value if isinstance(value, str) else ""


def _as_name(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
