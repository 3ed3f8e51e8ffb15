"""The template variables that every role is given: the only way from a pair to a prompt."""

from __future__ import annotations

from typing import Any

from agent.languages.canonical import canonical
from agent.llm.parsing import OpenLabelReply
from agent.state import State, Tools
from agent.types import CaseOutcome, CaseResult, Cause, QuerySpec, Reading, Status, TestReport

_CASE = CaseResult(name="test_a", outcome=CaseOutcome.FAILED, message="assert 1 == 2", cause=Cause.SNIPPET)
QUERY = {"query": "reverse a list", "language": "python", "criterion": "exact"}
"""The variables of `about_query`, by example."""
PAIR: dict[str, Any] = {
    **QUERY,
    "code": "def reverse(values):\n    return values[::-1]\n",
    "fence": "python",
    "context": "a method of a class",
    "spec": QuerySpec(readings=(Reading(text="the list in reverse order", requirements=("a list comes back",)),)),
}
"""The variables of `about_pair`, by example."""
EXECUTION: dict[str, Any] = {
    "report": TestReport(status=Status.FAILED, cause=Cause.SNIPPET, cases=(_CASE,), message="1 of 1 failed"),
    "output": "[1, 2]",
    "installed": ("numpy==2.3.5",),
}
"""The variables of `about_execution`, by example."""


def about_query(state: State, tools: Tools) -> dict[str, Any]:
    """Return query, language and criterion: what is the same for all candidates of a query."""
    pair = state["pair"]
    return {"query": pair.query, "language": pair.language, "criterion": tools.config.criterion}


def about_pair(state: State, tools: Tools) -> dict[str, Any]:
    """Return query, code, language, fence, context and criterion, nothing else of the input; and the readings."""
    pair = state["pair"]
    return {
        **about_query(state, tools),
        "code": pair.code,
        "fence": tools.language.fence,
        "context": pair.context,
        "spec": state.get("spec"),
    }


def readings(state: State) -> int:
    """Return how many readings of the query a reply may name (0: they were not worked out)."""
    spec = state.get("spec")
    return 0 if spec is None else len(spec.readings)


def chosen(state: State, number: int | None) -> State:
    """Return the reading that a reply names by its number, as the state keeps it; nothing where it names none."""
    spec = state.get("spec")
    return {} if spec is None or number is None else {"reading": spec.readings[number - 1].text}


def matched(state: State, reply: OpenLabelReply) -> str:
    """Return the reading that a reply finds matched; empty for any label but 1, whatever reading it speaks of."""
    return chosen(state, reply.reading).get("reading", "") if reply.label == 1 else ""


def about_execution(state: State) -> dict[str, Any]:
    """Return the execution report as prompts show it: without times, addresses and temporary paths."""
    report, result = state.get("report"), state.get("result")
    if report is not None:
        report = report.model_copy(
            update={
                "message": canonical(report.message),
                "cases": tuple(case.model_copy(update={"message": canonical(case.message)}) for case in report.cases),
            }
        )
    output = None if result is None else canonical("\n".join(part for part in (result.stdout, result.stderr) if part))
    environment = state.get("environment")
    return {
        "report": report,
        "output": output,
        "installed": () if environment is None else environment.installed,
    }
