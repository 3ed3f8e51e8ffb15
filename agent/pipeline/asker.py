"""Model calls for one pair: render the prompt, call the model, parse the reply, and retry if it is unreadable."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from agent.errors import ModelError, ReplyError
from agent.llm.base import Call, Message, Reply, ReplyKind
from agent.llm.gateway import Gateway
from agent.llm.parsing import INVISIBLE, UnreadableReply, build_schema, is_blank, strip_thinking
from agent.pipeline.history import ModelCall, Recorder
from agent.pipeline.prompts import Prompts, Role
from agent.text import make_printable, plural, replace_surrogates, truncate
from agent.types import Usage

_log = logging.getLogger(__name__)
REASK = Role("reask", {"cause": "the reply is blank", "reply": "json"}, blocks=("user",))
_ECHO_LIMIT = 16_000
_CAUSE_LIMIT = 500
_REASONING_REMEDY = ". Try -c thinking=off, or correct the reasoning parser in the server's options."
# Finish reasons that explain an unusable reply. LangChain does not unify the names that providers use.
CUT_OFF = frozenset({"length", "max_tokens"})
FILTERED = frozenset({"content_filter", "safety", "recitation", "blocklist", "prohibited_content", "spii"})
_ENDINGS = {
    **dict.fromkeys(CUT_OFF, "the reply reached the length limit"),
    **dict.fromkeys(FILTERED, "the server's content filter stopped the reply"),
    **dict.fromkeys(("tool_calls", "function_call", "tool_use"), "the model called a tool, but no tools were provided"),
    "refusal": "the model refused to answer",
}

T = TypeVar("T")


class Asker:
    """Makes the model calls for one pair in one round, one at a time. `sample` is the number of the round.

    `usage` is the total usage so far, including unusable replies and failed calls. Every call is added to `recorder`,
    with a `problem` if the call produced no usable reply.
    """

    def __init__(
        self,
        gateway: Gateway,
        prompts: Prompts,
        recorder: Recorder,
        *,
        pair_id: str,
        sample: int = 0,
        format_retries: int = 2,
    ) -> None:
        self.usage = Usage()
        self.recorder = recorder
        self._gateway = gateway
        self._prompts = prompts
        self._pair_id = pair_id
        self.sample = sample
        self._format_retries = format_retries
        self._turns: Counter[str] = Counter()

    async def ask(
        self, role: Role, variables: Mapping[str, Any], parse: Callable[[str], T], *, shared: bool = False
    ) -> T:
        """Make one model call and return its parsed reply. A `shared` call is made once for all pairs.

        If the reply is blank or `parse` raises a ValueError, the call is repeated up to `format_retries` times. The
        prompt of the retry states the cause. Retries after a blank reply do not use JSON mode, because some models
        return only spaces in that mode.

        Raises:
            ReplyError: no reply was usable; the message states why the last reply was not usable.
            ModelError: the model returned no reply.
            PromptError: the prompt cannot be rendered.
        """
        reply_kind: ReplyKind = "text" if role.reply is None else "json"
        schema = None if role.reply is None else build_schema(role.reply)
        messages, kind = self._prompts.render(role, variables), reply_kind
        problem = ""
        for attempt in range(self._format_retries + 1):
            turn = self._turns[role.name]
            call = Call(role.name, messages, kind, self.sample, self._pair_id, turn, variables, schema, shared)
            key = self._gateway.compute_key(call)
            reply = await self._call_model(call, key, attempt)
            try:
                value = read_reply(reply, parse)
            except UnreadableReply as error:
                problem = str(error)
                self._record(call, key, reply, attempt, problem)
                _log.info("%s call for pair %r: reply %d is unusable", role.name, self._pair_id, attempt + 1)
            else:
                self._record(call, key, reply, attempt)
                return value
            reask = self._prompts.render(REASK, {"cause": problem, "reply": reply_kind})
            if is_blank(reply.text):
                messages, kind = _append_to_last(messages, reask), "text"
            else:
                messages = (*messages, Message("assistant", _quote_reply(reply.text)), *reask)
        raise ReplyError(
            f"no usable reply for role {role.name!r} after {plural(self._format_retries + 1, 'attempt')}: {problem}"
            f"{_REASONING_REMEDY if is_blank(reply.text) and reply.reasoning else ''}"
        )

    async def _call_model(self, call: Call, key: str, attempt: int) -> Reply:
        self._turns[call.role] += 1
        try:
            reply = await self._gateway.ask(call, key)
        except ModelError as error:
            cost = error.usage or Usage()
            self._record(call, key, Reply("", usage=cost), attempt, f"{type(error).__name__}: {error}")
            raise
        return replace(reply, text=replace_surrogates(reply.text))

    def _record(self, call: Call, key: str, reply: Reply, attempt: int, problem: str | None = None) -> None:
        self.usage = self.usage + reply.usage
        self.recorder.add(
            ModelCall(
                role=call.role,
                key=key,
                messages=tuple({"role": message.role, "content": message.content} for message in call.messages),
                reply=reply.text,
                model=reply.model,
                cached=reply.cached,
                usage=reply.usage,
                saved=reply.saved,
                seconds=reply.seconds,
                problem=problem,
                attempt=attempt,
                shared=call.shared,
                raw=dict(reply.raw),
            )
        )


def read_reply(reply: Reply, parse: Callable[[str], T]) -> T:
    """Parse a reply with `parse`, which raises a ValueError for an unusable reply.

    Raises:
        UnreadableReply: the reply is blank or `parse` failed; the message includes the finish reason if that explains
            the failure.
    """
    try:
        if is_blank(reply.text):
            raise UnreadableReply(f"the reply is blank{_locate_text(reply)}")
        return parse(reply.text)
    except ValueError as error:
        cause = truncate(make_printable(str(error)), _CAUSE_LIMIT)
        ending = _ENDINGS.get(reply.finish_reason or "")
        raise UnreadableReply(cause if ending is None else f"{cause} ({ending})") from error


def _locate_text(reply: Reply) -> str:
    if reply.reasoning:
        return ": all of its text is in the reasoning field"
    return " after its thinking part" if reply.text.strip(INVISIBLE) else ""


def _append_to_last(messages: tuple[Message, ...], more: tuple[Message, ...]) -> tuple[Message, ...]:
    """Extend the last message: servers refuse empty assistant messages, and some refuse two user messages in a row."""
    last = messages[-1]
    content = "\n\n".join((last.content, *(message.content for message in more)))
    return (*messages[:-1], replace(last, content=content))


def _quote_reply(text: str) -> str:
    """Return the text of an unusable reply to quote in the retry's prompt.

    The text is truncated and excludes the thinking part.
    """
    with suppress(UnreadableReply):
        text = strip_thinking(text)
    return truncate(make_printable(text).strip(), _ECHO_LIMIT)
