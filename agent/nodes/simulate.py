"""Simulated Executor (paper, Table VI): the model predicts the outcome instead of running the program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from agent.llm import parsing
from agent.nodes.asking import PAIR, about_pair
from agent.state import Node, Role, State, Step, Tools
from agent.types import Simulated

SIMULATE = Role("simulate", {**PAIR, "program": "assert 1 == 2"}, parsing.SimulationReply)


class Simulate(Node):
    """Ask what the program would do; kept apart from real reports."""

    name = "simulate"
    requires = frozenset({"program"})
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"simulated": frozenset({"simulated"})}
    bypass = "simulated"
    roles = (SIMULATE,)

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return the predicted outcome."""
        variables = {**about_pair(state, tools), "program": state["program"].source}
        reply = await tools.asker.ask(SIMULATE, variables, parsing.parse_simulation)
        return Step("simulated", {"simulated": Simulated(status=reply.status, reason=reply.reason)})
