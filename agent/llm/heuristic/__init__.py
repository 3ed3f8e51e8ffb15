"""The embedded model `heuristic`: rules instead of a language model, without network, the same answer every time.

It is a floor to compare models against, not an annotator to trust: it knows words, a few simple queries and how to call
a function, and nothing of meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent.errors import ModelError
from agent.llm.base import Call, Reply
from agent.llm.heuristic.generation import generate_reply
from agent.llm.heuristic.repairing import repair_reply
from agent.llm.heuristic.ruling import arbitrate_reply, simulate_reply
from agent.llm.heuristic.screening import judge_reply, screen_reply
from agent.types import Usage

VERSION = 3
"""Raised whenever a rule, a table or a threshold changes: replies are cached under it."""

_ROLES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "screen": screen_reply,
    "judge": judge_reply,
    "arbitrate": arbitrate_reply,
    "simulate": simulate_reply,
    "generate_test": generate_reply,
    "repair": repair_reply,
}


class HeuristicModel:
    """Answers each role's call by rule, from `call.variables`; free of charge."""

    def identity(self) -> Mapping[str, Any]:
        """Return the model's name and the version of its rules."""
        return {"model": "heuristic", "version": VERSION}

    async def reply(self, call: Call) -> Reply:
        """Answer one call.

        Raises:
            ModelError: there is no rule for the role, or a test is asked for in another language than Python.
        """
        rule = _ROLES.get(call.role)
        if rule is None:
            raise ModelError(f"the embedded heuristic has no rule for the role {call.role!r}: choose another model")
        if call.role == "generate_test" and call.variables["language"] != "python":
            raise ModelError(
                f"the embedded heuristic writes tests for Python alone, not for {call.variables['language']!r}: "
                "choose another model or a variant without generate_test"
            )
        return Reply(text=rule(call.variables), usage=Usage(), model="heuristic", finish_reason="stop")
