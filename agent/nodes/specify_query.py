"""Query specification (ours): says what a query may mean, once for all its candidates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from agent.llm import parsing
from agent.nodes.asking import QUERY, about_query
from agent.state import Node, Role, State, Step, Tools

SPECIFY = Role("specify_query", QUERY, parsing.SpecReply)


class SpecifyQuery(Node):
    """Ask for the plausible readings of the query and what each requires.

    The question holds the query, its language and what the criterion makes of requirements, and nothing of a candidate,
    so that it is the same for all candidates of a query and is asked once in a run and round, also over a resume.
    """

    name = "specify_query"
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"specified": frozenset({"spec"})}
    bypass = "specified"
    roles = (SPECIFY,)

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return the readings."""
        question = about_query(state, tools)
        spec = await tools.asker.ask(SPECIFY, question, parsing.parse_spec, shared=True)
        return Step("specified", {"spec": spec})
