"""Final Arbiter (paper, section IV-C d): labels a pair from all that is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar, Literal

from agent.llm import parsing
from agent.nodes.asking import EXECUTION, PAIR, about_execution, about_pair, matched, readings
from agent.state import Node, Role, State, Step, Tools
from agent.types import Simulated, Status
from agent.wording import counted

UNDECIDED: Mapping[str, Literal[0] | None] = {"keep": None, "negative": 0}
"""The label of a pair that the evidence does not decide, by the setting `abstain`."""

_LABEL = frozenset({"label", "decided_by", "reason"})
ARBITRATE = Role(
    "arbitrate",
    {
        **PAIR,
        **EXECUTION,
        "program": "assert 1 == 2",
        "simulated": Simulated(status="passed", reason="the values come back in reverse order"),
        "stand_ins": ("Board",),
        "problem": "the snippet does not parse",
        "reading": "the list in reverse order",
        "may_abstain": True,
    },
    parsing.LabelReply,
)


class Arbitrate(Node):
    """Ask for the label, showing program and execution report where the variant has them."""

    name = "arbitrate"
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"decided": _LABEL}
    roles = (ARBITRATE,)

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return label and reason."""
        program, snippet = state.get("program"), state.get("snippet")
        (role,) = self.roles
        may_abstain = role.reply is parsing.OpenLabelReply
        variables = {
            **about_pair(state, tools),
            **about_execution(state),
            "program": None if program is None else program.source,
            "simulated": state.get("simulated"),
            "stand_ins": () if program is None else program.stand_ins,
            "problem": None if snippet is None else snippet.problem,
            "reading": state.get("reading"),
            "may_abstain": may_abstain,
        }
        parse = partial(parsing.parse_label, readings=readings(state), may_abstain=may_abstain)
        reply = await tools.asker.ask(role, variables, parse)
        decided: State = {"label": reply.label, "decided_by": "arbitrate", "reason": reply.reason}
        if reply.label is None:
            return Step("decided", {**decided, "label": UNDECIDED[tools.config.abstain], "abstained": True})
        return Step("decided", {**decided, "matched": matched(state, reply)})


class ArbitrateOrAbstain(Arbitrate):
    """Ask for the label, or that the evidence does not decide: then null, or 0 where the setting `abstain` says so.

    `decided_by` is `arbitrate`, so that tables of variants with and without this node can be compared; `abstained` says
    what became of the pair, whatever the label.
    """

    name = "arbitrate_or_abstain"
    plain = "arbitrate"
    roles = (replace(ARBITRATE, reply=parsing.OpenLabelReply),)
    settings = frozenset({"abstain"})


class ArbitrateByRule(Node):
    """Label by the test's status alone: passed is 1 (whatever that proves), failed is 0, anything else is undecided.

    By the criterion `half`, a failed test is 1 when at least half of its cases passed. `decided_by` is `arbitrate`, as
    with every arbiter.
    """

    name = "arbitrate_by_rule"
    requires = frozenset({"report"})
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"decided": _LABEL}

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return the label that the report's status implies."""
        report = state["report"]
        enough = tools.config.criterion == "half" and 2 * report.passed >= max(len(report.cases), 1)
        labels: dict[Status, int] = {Status.PASSED: 1, Status.FAILED: int(enough)}
        label = labels.get(report.status)
        cases = f"{report.passed} of {counted(len(report.cases), 'case')} passed"
        cause = "" if report.cause is None else f", cause {report.cause.value}"
        return Step(
            "decided",
            {
                "label": label,  # type: ignore[typeddict-item]
                "decided_by": "arbitrate",
                "reason": f"rule: the test {report.status.value}{cause}; {cases}",
            },
        )
