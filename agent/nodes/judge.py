"""Single LLM (paper, Table VI): one zero-shot chain-of-thought call with the guidelines, no test."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from agent.llm import parsing
from agent.nodes.asking import PAIR, about_pair, chosen, readings
from agent.state import Node, Role, State, Step, Tools

JUDGE = Role("judge", PAIR, parsing.LabelReply)


class Judge(Node):
    """Ask for the label at once."""

    name = "judge"
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"decided": frozenset({"label", "decided_by", "reason"})}
    roles = (JUDGE,)

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return label and reason."""
        parse = partial(parsing.parse_label, readings=readings(state))
        reply = await tools.asker.ask(JUDGE, about_pair(state, tools), parse)
        decided: State = {"label": reply.label, "decided_by": self.name, "reason": reply.reason}
        return Step("decided", {**decided, **chosen(state, reply.reading)})
