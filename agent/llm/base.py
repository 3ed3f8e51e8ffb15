"""The interface between the pipeline and language models."""

from __future__ import annotations

import inspect
from asyncio import sleep
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import Field

from agent.errors import ModelError
from agent.types import Count, Frozen, Seconds, Usage
from agent.types import Message as Message

ReplyKind = Literal["json", "text"]


@dataclass(frozen=True)
class Wait:
    """A pause before a call is retried. `seconds` is the minimum length of the pause.

    `rate_limited` is true if the server refused the call because of a rate limit or overload. `limits` contains the
    rate limit headers of the response, in the same form as `Reply.limits`.
    """

    reason: str
    seconds: float
    rate_limited: bool = False
    limits: Mapping[str, str] = field(default_factory=dict)


async def _wait(wait: Wait) -> None:
    await sleep(wait.seconds)


@dataclass(frozen=True)
class Call:
    """One model call.

    A remote model receives only `messages`. `variables` contains the values that the prompt template was rendered with.
    The `heuristic` model reads these values instead of the text. `pair_id`, `role` and `turn` (the number of earlier
    calls in this role for the pair) identify the call for replay models. These three fields are part of the cache key
    only if the model's `by_pair` is True. `schema` is the JSON Schema of a `json` reply. It is sent only if the reply
    format is `json_schema`. If `shared` is true, identical calls from other pairs reuse this reply, with or without a
    cache. The model awaits `on_wait` before each retry.
    """

    role: str
    messages: tuple[Message, ...]
    reply: ReplyKind = "text"
    sample: int = 0
    pair_id: str = ""
    turn: int = 0
    variables: Mapping[str, Any] = field(default_factory=dict)
    schema: Mapping[str, Any] | None = None
    shared: bool = False
    on_wait: Callable[[Wait], Awaitable[None]] = field(default=_wait, compare=False, repr=False)


MOST_REPLY_BYTES = 32 << 20
"""Maximum size of a response from a model's server, and of a line in a batch file, in bytes after decompression."""


@dataclass(frozen=True)
class Reply:
    """A model's reply: its text, its usage, and the response body.

    `usage` covers every billed attempt of the call. `raw` is the response body, which is JSON-serialisable. `seconds`
    is how long the model took, or None if that was not measured. If `cached` is true, `saved` is the original usage and
    `seconds` is the original duration. `address` is the server's URL, or an empty string for models without a server.
    `prepaid` is true if the reply was paid for in advance (for example, in a batch) and its usage has not been counted
    yet. `limits` contains the response headers that start with `x-ratelimit-`, with
    names in lower case.
    """

    text: str
    usage: Usage = Usage()
    model: str = ""
    fingerprint: str | None = None
    finish_reason: str | None = None
    reasoning: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)
    cached: bool = False
    saved: Usage = Usage()
    seconds: float | None = None
    address: str = ""
    prepaid: bool = False
    limits: Mapping[str, str] = field(default_factory=dict, compare=False)


@runtime_checkable
class LLM(Protocol):
    """The interface of a language model.

    If the optional `by_pair` attribute is True, replies also depend on the call's pair, role and turn. In that case,
    calls with identical messages do not share a reply.

    `reply` raises:
        ModelError: the call produced no usable reply, even after retries; the pair ends in an error.
        AccountError: no call can succeed; the run stops.
        Exception: a user-defined model raised any other exception, which is treated in the same way as `ModelError`.
    """

    def identity(self) -> Mapping[str, Any]:
        """Return JSON-serialisable values that determine the replies, such as the model's name and parameters."""

    async def reply(self, call: Call) -> Reply:
        """Reply to one call."""


def answers_by_pair(model: LLM) -> bool:
    """Return whether replies to identical messages may differ between pairs (the optional `by_pair` attribute)."""
    return bool(getattr(model, "by_pair", False))


def get_address(model: LLM) -> str:
    """Return the URL of a model's server (the optional `address` attribute), or an empty string if there is none."""
    return str(getattr(model, "address", ""))


async def close(model: LLM) -> None:
    """Close a model's connections by calling its optional `aclose` method."""
    closer = getattr(model, "aclose", None)
    if closer is not None:
        await closer()


ScriptedReply = str | Reply | BaseException
ReplyFunction = Callable[[Call], ScriptedReply | Awaitable[ScriptedReply]]
Script = Sequence[ScriptedReply] | Mapping[str, Sequence[ScriptedReply]] | ReplyFunction


class ScriptedLLM:
    """A model that replies from a script and records its `calls`.

    Args:
        replies: a list of replies in call order, a mapping from roles to such lists, or a sync or async function that
            receives the call. A reply is a string (counted as one call without tokens), a `Reply`, or an exception to
            raise.
        name: the model name in `identity()` and in replies. Scripts with different names do not share cached replies.
    """

    def __init__(self, replies: Script, *, name: str = "scripted") -> None:
        if isinstance(replies, str):
            raise TypeError("replies must be a list, a mapping from roles to lists, or a function, not a single string")
        self._name = name
        self._script: ReplyFunction | dict[str, list[ScriptedReply]] | list[ScriptedReply]
        if isinstance(replies, Mapping):
            self._script = {role: list(script) for role, script in replies.items()}
        else:
            self._script = replies if callable(replies) else list(replies)
        self.calls: list[Call] = []

    def identity(self) -> Mapping[str, Any]:
        """Return the model's kind and name."""
        return {"kind": "scripted", "model": self._name}

    async def reply(self, call: Call) -> Reply:
        """Return the next reply of the script.

        Raises:
            ModelError: the script has no reply left for this call.
        """
        self.calls.append(call)
        reply = await self._next_reply(call)
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, str):
            return Reply(reply, usage=Usage(calls=1), model=self._name)
        return reply

    async def _next_reply(self, call: Call) -> ScriptedReply:
        if callable(self._script):
            reply = self._script(call)
            return await reply if inspect.isawaitable(reply) else reply
        replies = self._script if isinstance(self._script, list) else self._script.get(call.role, [])
        if not replies:
            raise ModelError(
                f"the script {self._name!r} has no reply left for role {call.role!r}, pair {call.pair_id!r}, "
                f"turn {call.turn} (call {len(self.calls)})"
            )
        return replies.pop(0)


class ModelCall(Frozen):
    """One model call and its reply. `key` is the reply's key in the reply cache.

    `usage` is the usage that this run paid for. `saved` is the original usage of a reply from the cache. `seconds` is
    the duration of the original call (None: unknown). `problem` explains why the reply was unusable. `attempt` is the
    number of earlier unusable replies to the same prompt. If `shared` is true, identical calls from other pairs reuse
    the reply.
    """

    kind: Literal["model_call"] = "model_call"
    role: str
    key: str
    messages: tuple[dict[str, str], ...]
    reply: str
    model: str = ""
    cached: bool = False
    usage: Usage = Usage()
    saved: Usage = Usage()
    seconds: Seconds | None = None
    problem: str | None = None
    attempt: Count = 0
    shared: bool = False
    raw: dict[str, Any] = Field(default_factory=dict)
