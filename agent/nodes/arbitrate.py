"""Final Arbiter (paper, section IV-C d): labels a pair from all that is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from agent.llm import parsing
from agent.nodes.asking import about_execution, about_pair
from agent.state import State, Step, Tools
from agent.types import Status

_LABEL = frozenset({"label", "decided_by", "reason"})


class Arbitrate:
    """Ask for the label, showing program and execution report where the variant has them."""

    name = "arbitrate"
    requires = frozenset({"pair"})
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"decided": _LABEL}
    bypass = None
    uses_sandbox = False
    role = "arbitrate"

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return label and reason."""
        program, snippet = state.get("program"), state.get("snippet")
        variables = {
            **about_pair(state, tools),
            **about_execution(state),
            "program": None if program is None else program.source,
            "simulated": state.get("simulated"),
            "stand_ins": state.get("stand_ins", ()),
            "problem": None if snippet is None else snippet.problem,
        }
        reply = await tools.asker.ask("arbitrate", variables, parsing.parse_label, reply="json")
        return Step("decided", {"label": reply.label, "decided_by": self.name, "reason": reply.reason})


class ArbitrateByRule:
    """Label by the test alone: passed is 1, failed is 0, anything else is undecided (null).

    By the criterion `half`, a failed test is 1 when at least half of its cases passed.
    """

    name = "arbitrate_by_rule"
    requires = frozenset({"report"})
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"decided": _LABEL}
    bypass = None
    uses_sandbox = False

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return the label that the report's status implies."""
        report = state["report"]
        enough = tools.config.criterion == "half" and 2 * report.passed >= max(len(report.cases), 1)
        labels: dict[Status, int] = {Status.PASSED: 1, Status.FAILED: int(enough)}
        label = labels.get(report.status)
        cases = f"{report.passed} of {len(report.cases)} cases passed"
        cause = "" if report.cause is None else f", cause {report.cause.value}"
        return Step(
            "decided",
            {
                "label": label,  # type: ignore[typeddict-item]
                "decided_by": self.name,
                "reason": f"rule: the test {report.status.value}{cause}; {cases}",
            },
        )
