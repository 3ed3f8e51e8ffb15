"""Preliminary Screener (paper, section IV-C a): decides clear cases without a test."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from agent.llm import parsing
from agent.nodes.asking import PAIR, about_pair, chosen, readings
from agent.state import Node, Role, State, Step, Tools
from agent.types import Verdict

_LABEL = frozenset({"label", "decided_by", "reason"})
SCREEN = Role("screen", PAIR, parsing.ScreenReply)


class Screen(Node):
    """Ask whether the code clearly matches, clearly does not, or needs a test."""

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
