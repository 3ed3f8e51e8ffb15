"""Asks a pair's questions: renders the prompt, calls, reads the reply, and asks again when it cannot be read."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from agent.errors import ModelError, ReplyError
from agent.history import Exchange, Recorder
from agent.llm.base import Call, Message, Reply, ReplyKind
from agent.llm.gateway import Gateway
from agent.llm.parsing import UnreadableReply, build_schema, is_blank, strip_thinking
from agent.prompt_text import make_printable, replace_surrogates, truncate
from agent.prompts import Prompts, Role
from agent.types import Usage

_log = logging.getLogger(__name__)
REASK = Role("reask", {"cause": "the reply is blank", "reply": "json"}, blocks=("user",))
_ECHO_LIMIT = 16_000
_CAUSE_LIMIT = 500
# how servers say that a reply did not end as it should; LangChain hands theirs through as they are
_ENDINGS = {
    **dict.fromkeys(("length", "max_tokens"), "the reply reached the limit on its length"),
    **dict.fromkeys(("tool_calls", "function_call", "tool_use"), "the model called a tool, and was given none"),
    "content_filter": "the server's content filter stopped the reply",
    "refusal": "the model refused to answer",
}

T = TypeVar("T")


class Asker:
    """One pair's questions to the models in one round (`sample`), asked one after another.

    `usage` is everything that was paid for so far, unusable replies and failed calls included. Every call goes to the
    `recorder`, with `problem` where it gave nothing that could be used.
    """

    def __init__(
        self, gateway: Gateway, prompts: Prompts, recorder: Recorder, *, pair_id: str, sample: int = 0, reasks: int = 2
    ) -> None:
        self.usage = Usage()
        self.recorder = recorder
        self._gateway = gateway
        self._prompts = prompts
        self._pair_id = pair_id
        self.sample = sample
        self._reasks = reasks
        self._turns: Counter[str] = Counter()
        self._questions: dict[str, Callable[..., Awaitable[Any]]] = {}

    async def ask(
        self,
        role: Role,
        variables: Mapping[str, Any],
        parse: Callable[[str], T],
        *,
        vote: int = 0,
        shared: bool = False,
    ) -> T:
        """Ask one question and return what `parse` makes of the reply.

        Each `vote` is an independent sample; a `shared` question is asked once for all pairs.

        A reply that is blank, or for which `parse` raises a ValueError, is asked again with the cause, `reasks` times;
        after a blank JSON reply without the JSON mode, which some models answer with nothing but spaces.

        Raises:
            ReplyError: no reply could be used; the message gives the last cause.
            ModelError: the model gave no reply.
            PromptError: the prompt does not render.
        """
        self._questions[role.name] = partial(self.ask, role, variables, parse)
        reply: ReplyKind = "text" if role.reply is None else "json"
        schema = None if role.reply is None else build_schema(role.reply, variables)
        messages, kind = self._prompts.render(role, variables), reply
        sample, problem = number_sample(self.sample, vote), ""
        for attempt in range(self._reasks + 1):
            turn = self._turns[role.name]
            call = Call(role.name, messages, kind, sample, self._pair_id, turn, variables, schema, shared)
            key = self._gateway.compute_key(call)
            answer = await self._call_model(call, key, attempt)
            try:
                value = read_reply(answer, parse)
            except UnreadableReply as error:
                problem = str(error)
                self._record(call, key, answer, attempt, problem)
                _log.info("%s of pair %r: reply %d cannot be used", role.name, self._pair_id, attempt + 1)
            else:
                self._record(call, key, answer, attempt)
                return value
            again = self._prompts.render(REASK, {"cause": problem, "reply": reply})
            if is_blank(answer.text):
                messages, kind = _append_to_last(messages, again), "text"
            else:
                messages = (*messages, Message("assistant", _truncate_echo(answer.text)), *again)
        times = "once" if self._reasks == 0 else f"{self._reasks + 1} times"
        raise ReplyError(f"no usable reply to {role.name!r}, asked {times}: {problem}")

    def has_asked(self, role: str) -> bool:
        """Say whether a question of this role was asked."""
        return role in self._questions

    async def ask_again(self, role: str, vote: int) -> Any:
        """Ask the latest question of a role once more, word by word, for an independent sample.

        `vote` counts from 1, as the first answer was vote 0. Returns and raises what `ask` does.
        """
        return await self._questions[role](vote=vote)

    async def _call_model(self, call: Call, key: str, attempt: int) -> Reply:
        self._turns[call.role] += 1
        try:
            answer = await self._gateway.ask(call, key)
        except ModelError as error:
            cost = error.usage or Usage()
            self._record(call, key, Reply("", usage=cost), attempt, f"{type(error).__name__}: {error}")
            raise
        return replace(answer, text=replace_surrogates(answer.text))

    def _record(self, call: Call, key: str, answer: Reply, attempt: int, problem: str | None = None) -> None:
        self.usage = self.usage + answer.usage
        self.recorder.add(
            Exchange(
                role=call.role,
                key=key,
                messages=tuple({"role": each.role, "content": each.content} for each in call.messages),
                reply=answer.text,
                model=answer.model,
                cached=answer.cached,
                usage=answer.usage,
                saved=answer.saved,
                seconds=answer.seconds,
                problem=problem,
                attempt=attempt,
                shared=call.shared,
                raw=dict(answer.raw),
            )
        )


def number_sample(round_number: int, vote: int) -> int:
    """Return the sample number of a vote in a round: of vote 0 the round itself, of every other one of its own.

    Those others are the negative numbers, in the order of Cantor's pairing function: no two votes of whatever rounds
    share a reply, and questions that are asked once find the replies that they always found.
    """
    if vote == 0:
        return round_number
    diagonal = round_number + vote - 1
    return -(diagonal * (diagonal + 1) // 2 + vote)


def read_reply(answer: Reply, parse: Callable[[str], T]) -> T:
    """Return what `parse`, which raises a ValueError where it cannot, makes of a reply.

    Raises:
        UnreadableReply: `parse` failed, or the reply is blank; says how the reply ended where that explains it.
    """
    try:
        if is_blank(answer.text):
            raise UnreadableReply("the reply is blank")
        return parse(answer.text)
    except ValueError as error:
        cause = truncate(make_printable(str(error)), _CAUSE_LIMIT)
        ending = _ENDINGS.get(answer.finish_reason or "")
        raise UnreadableReply(cause if ending is None else f"{cause} ({ending})") from error


def _append_to_last(messages: tuple[Message, ...], again: tuple[Message, ...]) -> tuple[Message, ...]:
    """Add to the last turn: servers refuse an empty assistant turn, and some refuse two user turns in a row."""
    last = messages[-1]
    content = "\n\n".join((last.content, *(message.content for message in again)))
    return (*messages[:-1], replace(last, content=content))


def _truncate_echo(text: str) -> str:
    """Return an unusable reply as its turn in the conversation: without its thinking, and not at any length."""
    with suppress(UnreadableReply):
        text = strip_thinking(text)
    return truncate(make_printable(text).strip(), _ECHO_LIMIT)
