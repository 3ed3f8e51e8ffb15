"""Nodes that make one model call, and functions that collect the prompt variables of a pair.

Prompts receive a pair's data only through these functions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from agent.errors import InputError
from agent.languages.canonical import canonicalise
from agent.llm import parsing
from agent.pipeline.state import Node, Role, State, Step, Tools
from agent.text import plural
from agent.types import (
    INTENT_JUDGE,
    CaseOutcome,
    CaseResult,
    Cause,
    Comparison,
    Preference,
    Simulated,
    Status,
    TestReport,
    Verdict,
    WrittenCode,
)

_CASE = CaseResult(name="test_a", outcome=CaseOutcome.FAILED, message="assert 1 == 2", cause=Cause.SNIPPET)
QUERY = {"query": "reverse a list", "language": "python", "criterion": "exact"}
"""Example of the result of `collect_query_variables`."""
PAIR: dict[str, Any] = {
    **QUERY,
    "code": "def reverse(values):\n    return values[::-1]\n",
    "fence": "python",
    "context": "a method of a class",
}
"""Example of the result of `collect_pair_variables`."""
EXECUTION: dict[str, Any] = {
    "report": TestReport(status=Status.FAILED, cause=Cause.SNIPPET, cases=(_CASE,), message="1 of 1 failed"),
    "output": "[1, 2]",
    "installed": ("numpy==2.3.5",),
}
"""Example of the result of `collect_execution_variables`."""


def collect_query_variables(state: State, tools: Tools) -> dict[str, Any]:
    """Return the query, its language and the criterion, which are the same for all snippets paired with a query."""
    pair = state["pair"]
    return {"query": pair.query, "language": pair.language, "criterion": tools.config.criterion}


def collect_pair_variables(state: State, tools: Tools) -> dict[str, Any]:
    """Return the query, code, language, Markdown fence, context and criterion, and no other input fields."""
    pair = state["pair"]
    return {
        **collect_query_variables(state, tools),
        "code": pair.code,
        "fence": tools.language.fence,
        "context": pair.context,
    }


def collect_execution_variables(state: State) -> dict[str, Any]:
    """Return the execution report as shown in prompts, without times, addresses or temporary paths."""
    report, result = state.get("report"), state.get("result")
    if report is not None:
        report = report.model_copy(
            update={
                "message": canonicalise(report.message),
                "cases": tuple(
                    case.model_copy(update={"message": canonicalise(case.message)}) for case in report.cases
                ),
            }
        )
    output = (
        None if result is None else canonicalise("\n".join(part for part in (result.stdout, result.stderr) if part))
    )
    environment = state.get("environment")
    return {
        "report": report,
        "output": output,
        "installed": () if environment is None else environment.installed,
    }


_LABEL = frozenset({"label", "decided_by", "reason"})
_DOCUMENT = frozenset({"label", "decided_by", "document"})
INTENT = Role(INTENT_JUDGE, QUERY, parsing.IntentReply)
SCREEN = Role("screen", PAIR, parsing.ScreenReply)
JUDGE = Role("judge", PAIR, parsing.LabelReply)
PREFER = Role("prefer", {**PAIR, "first": PAIR["code"]}, parsing.PreferenceReply)
SIMULATE = Role("simulate", {**PAIR, "program": "assert 1 == 2"}, parsing.SimulationReply)


class JudgeIntent(Node):
    """Ask whether the query searches for code, before anyone looks at a snippet (CoSQA paper, section 3.2).

    Pairs whose query has no search intent end without a label. The prompt contains nothing from a snippet, so one call
    per round serves all snippets paired with a query, even if the run is resumed.
    """

    name = INTENT_JUDGE
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"intent": frozenset(), "no_intent": _LABEL}
    bypass = "intent"
    roles = (INTENT,)

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return whether the query has search intent. The reason is kept if it has none."""
        variables = collect_query_variables(state, tools)
        reply = await tools.asker.ask(INTENT, variables, parsing.parse_intent, shared=True)
        if reply.intent == "yes":
            return Step("intent", {})
        return Step("no_intent", {"label": None, "decided_by": self.name, "reason": reply.reason})


class WriteCode(Node):
    """Ask for code that answers the query (section 3.4 of the CoSQA+ paper, version 1), as a `WrittenCode`.

    The pair contains a rejected snippet or none. Its context says why the snippet was rejected.
    """

    name = "write_code"
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"written": _DOCUMENT}
    roles = (Role(name, PAIR),)

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return the code, without a label."""
        parse = partial(parsing.parse_code, fence=tools.language.fence)
        code = await tools.asker.ask(self.roles[0], collect_pair_variables(state, tools), parse)
        return Step("written", {"label": None, "decided_by": self.name, "document": WrittenCode(code=code)})


class Screen(Node):
    """Preliminary Screener (CoSQA+ paper, section IV-C a): ask for a verdict. `unclear` requires a test.

    A random sample of the pairs that the screener labels continues as if the verdict were unclear. The sample is used
    to estimate the error rate of the screener. `screen_audit_rate` is the fraction of these pairs to sample.
    """

    name = "screen"
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {
        "match": _LABEL,
        "non_match": _LABEL,
        "unclear": frozenset({"screen_verdict"}),
    }
    bypass = "unclear"
    roles = (SCREEN,)
    settings = frozenset({"screen_audit_rate"})

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return the verdict. A clear verdict determines the label."""
        reply = await tools.asker.ask(SCREEN, collect_pair_variables(state, tools), parsing.parse_screen)
        verdict = Verdict(reply.verdict)
        if verdict is Verdict.UNCLEAR:
            return Step("unclear", {"screen_verdict": verdict})
        if is_in_audit_sample(state["pair"].id, tools.asker.sample, tools.config.screen_audit_rate or 0.0):
            reason = f"{verdict.value}, but selected for the screener audit: {reply.reason}"
            return Step("unclear", {"screen_verdict": verdict, "audited": True, "reason": reason})
        return Step(
            verdict.value,
            {
                "screen_verdict": verdict,
                "label": 1 if verdict is Verdict.MATCH else 0,
                "decided_by": self.name,
                "reason": reply.reason,
            },
        )


def is_in_audit_sample(pair_id: str, round_number: int, share: float) -> bool:
    """Return whether a pair is in the audit sample of a round. The result does not depend on order or resuming."""
    digest = hashlib.sha256(f"audit_screen {round_number} {pair_id}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8]) < share * 2**64


class Judge(Node):
    """Single LLM (CoSQA+ paper, Table VI): ask for the label according to the guidelines, without a test."""

    name = "judge"
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"decided": _LABEL}
    roles = (JUDGE,)

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return the label and the reason."""
        reply = await tools.asker.ask(JUDGE, collect_pair_variables(state, tools), parsing.parse_label)
        return Step("decided", {"label": reply.label, "decided_by": self.name, "reason": reply.reason})


class Prefer(Node):
    """Ask which snippet of a `Comparison` satisfies more of the query (CoSQA+ paper, RQ1), for `agent prefer`."""

    name = "prefer"
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"decided": _DOCUMENT}
    roles = (PREFER,)

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return the preference and the reason, without a label."""
        pair = state["pair"]
        if not isinstance(pair, Comparison):
            raise InputError(f"pair {pair.id[:60]!r} is no comparison. The node {self.name!r} needs two snippets")
        variables = {**collect_pair_variables(state, tools), "first": pair.first}
        reply = await tools.asker.ask(PREFER, variables, parsing.parse_preference)
        document = Preference(choice=reply.better)
        return Step("decided", {"label": None, "decided_by": self.name, "reason": reply.reason, "document": document})


class Simulate(Node):
    """Simulated Executor (CoSQA+ paper, Table VI): ask for a prediction of a program's outcome.

    The prediction is not a test report.
    """

    name = "simulate"
    requires = frozenset({"program"})
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"simulated": frozenset({"simulated"})}
    bypass = "simulated"
    roles = (SIMULATE,)

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return the predicted outcome."""
        variables = {**collect_pair_variables(state, tools), "program": state["program"].source}
        reply = await tools.asker.ask(SIMULATE, variables, parsing.parse_simulation)
        return Step("simulated", {"simulated": Simulated(status=reply.status, reason=reply.reason)})


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
    },
    parsing.LabelReply,
)
ARBITRATE_IN_MODULE = ARBITRATE.with_version("in_module", module="lists")


class Arbitrate(Node):
    """Ask for the label. The prompt contains the program and the execution report if the variant produces them."""

    name = "arbitrate"
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"decided": _LABEL}
    roles = (ARBITRATE, ARBITRATE_IN_MODULE)

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return the label and the reason."""
        program, snippet = state.get("program"), state.get("snippet")
        variables = {
            **collect_pair_variables(state, tools),
            **collect_execution_variables(state),
            "program": None if program is None else program.source,
            "simulated": state.get("simulated"),
            "stand_ins": () if program is None else program.stand_ins,
            "problem": None if snippet is None else snippet.problem,
            "reading": state.get("reading"),
        }
        role = ARBITRATE
        if "module" in state and "result" in state:
            role, variables["module"] = ARBITRATE_IN_MODULE, state["module"].origin.module
        reply = await tools.asker.ask(role, variables, parsing.parse_label)
        return Step("decided", {"label": reply.label, "decided_by": self.name, "reason": reply.reason})


class ArbitrateByRule(Node):
    """Derive the label from the test's status alone: 1 for passed, 0 for failed, and undecided for anything else.

    With the `half` criterion, the label of a failed test is also 1 if at least half of its cases passed. `decided_by`
    is `arbitrate`, which is the value for every arbiter.
    """

    name = "arbitrate_by_rule"
    requires = frozenset({"report"})
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"decided": _LABEL}

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return the label that follows from the report's status."""
        report = state["report"]
        enough = tools.config.criterion == "half" and 2 * report.passed >= max(len(report.cases), 1)
        labels: dict[Status, int] = {Status.PASSED: 1, Status.FAILED: int(enough)}
        cases = f"{report.passed} of {plural(len(report.cases), 'case')} passed"
        cause = "" if report.cause is None else f", cause {report.cause.value}"
        return Step(
            "decided",
            {
                "label": labels.get(report.status),  # type: ignore[typeddict-item]
                "decided_by": "arbitrate",
                "reason": f"rule: test status {report.status.value}{cause}; {cases}",
            },
        )
