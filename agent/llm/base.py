"""What the pipeline needs of a language model."""

from __future__ import annotations

import inspect
from asyncio import sleep
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from agent.errors import ModelError
from agent.types import Message as Message
from agent.types import Usage

ReplyKind = Literal["json", "text"]


@dataclass(frozen=True)
class Wait:
    """A model waits before it tries again: why, and how many seconds at least.

    `refused`: its server says that it is asked too much. `limits` are the response's headers as in `Reply.limits`.
    """

    why: str
    seconds: float
    rate_limited: bool = False
    limits: Mapping[str, str] = field(default_factory=dict)


async def _wait(wait: Wait) -> None:
    await sleep(wait.seconds)


@dataclass(frozen=True)
class Call:
    """One question to a model.

    `messages` are all that a remote model sees. `variables` are the template's variables, for embedded models that
    read values rather than text. `pair_id`, `role` and `turn` (how many calls of this role the pair made before) name
    the call for replays; they are part of the cache key only of models that answer `by_pair`. `schema` is the JSON
    Schema of a `json` reply, sent to servers that are asked for `json_schema`. `shared`: other pairs of the run ask the
    very same and are to have the same reply, whatever the model and even where no cache is. `on_wait` is called
    before the model tries again, and waits until it may.
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


@dataclass(frozen=True)
class Reply:
    """A model's answer: its text, what it cost, and the body as received.

    `usage` includes every attempt that was billed for this call, retries too. `raw` is JSON-serialisable. `seconds` is
    how long the model took, None where nobody measured it. Of a reply that was not paid for (`cached`), `saved` is what
    it cost when it was, and `seconds` how long it took then. `address` is the server's, empty for embedded models.
    `prepaid`: it came by a batch, and no turn has counted its usage yet.
    `limits` are those of the response's headers that begin with `x-ratelimit-`, by their names in lower case.
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
    """A language model, in two methods.

    An attribute `by_pair = True` says that the reply depends on the call's pair, role and turn, too: no other call with
    equal messages is then given it.

    Raises of `reply`:
        ModelError: this call gave no usable reply (retries included); the pair ends in an error.
        AccountError: no call can succeed; the run stops.
        Exception: any other exception of a model of your own ends the pair like a `ModelError`.
    """

    def identity(self) -> Mapping[str, Any]:
        """Return what decides the replies: model, parameters, extra body (JSON-serialisable)."""

    async def reply(self, call: Call) -> Reply:
        """Answer one call."""


def answers_by_pair(model: LLM) -> bool:
    """Say whether a model answers equal messages of two pairs differently (an optional attribute `by_pair`)."""
    return bool(getattr(model, "by_pair", False))


def get_address(model: LLM) -> str:
    """Return the address of a model's server (an optional attribute `address`), empty where it has none."""
    return str(getattr(model, "address", ""))


async def close(model: LLM) -> None:
    """Close a model that holds connections (an optional `aclose` method)."""
    closer = getattr(model, "aclose", None)
    if closer is not None:
        await closer()


Answer = str | Reply | BaseException
Answering = Callable[[Call], Answer | Awaitable[Answer]]
Script = Sequence[Answer] | Mapping[str, Sequence[Answer]] | Answering


class ScriptedLLM:
    """Answers from a script and keeps the `calls` it got.

    Args:
        replies: answers in the order of the calls, such lists by role, or a function of the call (it may be async). An
            answer is a text (counted as one call without tokens), a `Reply`, or an exception to raise.
        name: distinguishes two scripts, in `identity()` and as the replies' model.
    """

    def __init__(self, replies: Script, *, name: str = "scripted") -> None:
        if isinstance(replies, str):
            raise TypeError("replies are a list of texts, such lists by role, or a function; not a text")
        self._name = name
        self._script: Answering | dict[str, list[Answer]] | list[Answer]
        if isinstance(replies, Mapping):
            self._script = {role: list(answers) for role, answers in replies.items()}
        else:
            self._script = replies if callable(replies) else list(replies)
        self.calls: list[Call] = []

    def identity(self) -> Mapping[str, Any]:
        """Return the script's name."""
        return {"kind": "scripted", "model": self._name}

    async def reply(self, call: Call) -> Reply:
        """Give the next answer.

        Raises:
            ModelError: the script has no answer left for this call.
        """
        self.calls.append(call)
        answer = await self._answer(call)
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, str):
            return Reply(answer, usage=Usage(calls=1), model=self._name)
        return answer

    async def _answer(self, call: Call) -> Answer:
        if callable(self._script):
            given = self._script(call)
            return await given if inspect.isawaitable(given) else given
        answers = self._script if isinstance(self._script, list) else self._script.get(call.role, [])
        if not answers:
            raise ModelError(
                f"the script {self._name!r} has no answer left for role {call.role!r}, pair {call.pair_id!r}, "
                f"turn {call.turn} (call {len(self.calls)})"
            )
        return answers.pop(0)
