"""The template variables that every role is given: the only way from a pair to a prompt."""

from __future__ import annotations

from typing import Any

from agent.languages.canonical import canonical
from agent.state import State, Tools


def about_pair(state: State, tools: Tools) -> dict[str, Any]:
    """Return query, code, language, fence, context and criterion; nothing else of the input."""
    pair = state["pair"]
    return {
        "query": pair.query,
        "code": pair.code,
        "language": pair.language,
        "fence": tools.language.fence,
        "context": pair.context,
        "criterion": tools.config.criterion,
    }


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
