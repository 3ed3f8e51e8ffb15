"""Nodes that do nothing but ask a model one question: the screener, the single LLM, and what goes before a test."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from agent.llm import parsing
from agent.nodes.asking import PAIR, QUERY, about_pair, about_query, chosen, readings
from agent.state import Node, Role, State, Step, Tools
from agent.types import Simulated, Verdict

_LABEL = frozenset({"label", "decided_by", "reason"})
SPECIFY = Role("specify_query", QUERY, parsing.SpecReply)
SCREEN = Role("screen", PAIR, parsing.ScreenReply)
JUDGE = Role("judge", PAIR, parsing.LabelReply)
SIMULATE = Role("simulate", {**PAIR, "program": "assert 1 == 2"}, parsing.SimulationReply)


class SpecifyQuery(Node):
    """Ask for the plausible readings of the query and what each requires (ours).

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


class Screen(Node):
    """Preliminary Screener (paper, section IV-C a): ask whether code clearly matches, clearly not, or needs a test."""

    name = "screen"
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {
        "match": _LABEL,
        "non_match": _LABEL,
        "unclear": frozenset({"screen_verdict"}),
    }
    bypass = "unclear"
    roles = (SCREEN,)

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return the verdict; a clear one is the label."""
        parse = partial(parsing.parse_screen, readings=readings(state))
        reply = await tools.asker.ask(SCREEN, about_pair(state, tools), parse)
        verdict = Verdict(reply.verdict)
        if verdict is Verdict.UNCLEAR:
            return Step("unclear", {"screen_verdict": verdict})
        return Step(
            verdict.value,
            {
                "screen_verdict": verdict,
                "label": 1 if verdict is Verdict.MATCH else 0,
                "decided_by": self.name,
                "reason": reply.reason,
                **chosen(state, reply.reading),
            },
        )


class Judge(Node):
    """Single LLM (paper, Table VI): ask for the label at once, by the guidelines, with no test."""

    name = "judge"
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"decided": _LABEL}
    roles = (JUDGE,)

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return label and reason."""
        parse = partial(parsing.parse_label, readings=readings(state))
        reply = await tools.asker.ask(JUDGE, about_pair(state, tools), parse)
        decided: State = {"label": reply.label, "decided_by": self.name, "reason": reply.reason}
        return Step("decided", {**decided, **chosen(state, reply.reading)})


class Simulate(Node):
    """Simulated Executor (paper, Table VI): ask what the program would do; kept apart from real reports."""

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
