"""A model that says what it was told to: for tests, and for trying out nodes and prompts."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from agent.errors import ModelError
from agent.llm.base import Call, Reply
from agent.types import Usage

Answer = str | Reply | BaseException
Answering = Callable[[Call], Answer | Awaitable[Answer]]
Script = Sequence[Answer] | Mapping[str, Sequence[Answer]] | Answering


class ScriptedLLM:
    """Answers from a script and keeps the `calls` it got.

    Args:
        replies: answers in the order of the calls, such lists by role, or a function of the call (it may be async). An
            answer is a text (counted as one call without tokens), a `Reply`, or an exception to raise.
        name: tells two scripts apart, in `identity()` and as the replies' model.
    """

    def __init__(self, replies: Script, *, name: str = "scripted") -> None:
        if isinstance(replies, str):
            raise TypeError("replies are a list of texts, such lists by role, or a function; not a text")
        self._name = name
        self._answering: Answering | None = replies if callable(replies) else None
        self._by_role: dict[str, list[Answer]] | None = None
        self._answers: list[Answer] = []
        if isinstance(replies, Mapping):
            self._by_role = {role: list(answers) for role, answers in replies.items()}
        elif not callable(replies):
            self._answers = list(replies)
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
        if self._answering is not None:
            given = self._answering(call)
            return await given if inspect.isawaitable(given) else given
        answers = self._answers if self._by_role is None else self._by_role.get(call.role, [])
        if not answers:
            raise ModelError(
                f"the script {self._name!r} has no answer left for role {call.role!r}, pair {call.pair_id!r}, "
                f"turn {call.turn} (call {len(self.calls)})"
            )
        return answers.pop(0)
