"""Formats pairs, executions and other values for prompts, and wraps texts in delimiters."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from agent.languages.base import MAX_OUTLINE
from agent.text import make_printable, truncate
from agent.types import Simulated, TestReport

LIMITS: Mapping[str, int] = {
    "query": 2_000,
    "question": 8_000,
    "code": 24_000,
    "context": 8_000,
    "outline": MAX_OUTLINE,
    "program": 32_000,
    "output": 6_000,
    "report": 8_000,
    "history": 8_000,
}
OTHER_LIMIT = 4_000
_MESSAGE_LIMIT = 600
_LISTED_CASES = 40


def fit(text: str, name: str) -> str:
    """Make the text printable and truncate it to the limit for blocks named `name`."""
    return truncate(make_printable(text), LIMITS.get(name, OTHER_LIMIT))


def delimit(blocks: Sequence[tuple[str, str]], around: str = "") -> list[str]:
    """Wrap each block of text in tags with an id that does not occur in any of the texts or in `around`.

    `blocks` contains names and fitted texts. An id depends only on the name and the text of its block, unless the id
    occurs in one of the texts. This keeps the starts of prompts identical, so that providers can cache them.
    """
    contents = "\n".join([around, *(text for _, text in blocks)]).lower()
    wrapped = []
    for name, text in blocks:
        counter = 0
        while (identity := hashlib.sha256(f"{name}\0{counter}\0{text}".encode()).hexdigest()[:12]) in contents:
            counter += 1
        contents += f"\n{identity}"
        wrapped.append(f'<{name} id="{identity}">\n{text}\n</{name} id="{identity}">')
    return wrapped


def describe_report(report: TestReport) -> str:
    """Format an execution report as lines of text, without values that vary between executions."""
    cause = "" if report.cause is None else f" (cause: {report.cause.value})"
    lines = [f"status: {report.status.value}{cause}"]
    if report.message:
        lines.append(f"message: {_indent(report.message)}")
    if report.cases:
        lines.append(f"cases: {report.passed} passed, {report.failed} failed, {report.errors} with another error")
    for case in report.cases[:_LISTED_CASES]:
        cause = "" if case.cause is None else f" (cause: {case.cause.value})"
        message = f": {_indent(case.message)}" if case.message else ""
        lines.append(f"- {_indent(case.name)}: {case.outcome.value}{cause}{message}")
    if len(report.cases) > _LISTED_CASES:
        lines.append(f"- and {len(report.cases) - _LISTED_CASES} more cases")
    return "\n".join(lines)


def describe_history(history: tuple[Mapping[str, str], ...]) -> str:
    """Format the repair commands so far, each with its outcome and its indented output."""
    lines = []
    for run in history:
        lines.append(f"$ {_indent(run['command'])}  [{run['outcome']}]")
        if run["output"]:
            lines.append(f"    {_indent(run['output'])}")
    return "\n".join(lines)


def describe_simulation(simulated: Simulated) -> str:
    """Format a predicted outcome."""
    return f"status: {simulated.status}\nreason: {simulated.reason}"


def describe_list(values: tuple[str, ...]) -> str:
    """Format values as a list with one entry per value. Continuation lines are indented."""
    return "\n".join(f"- {_indent(value)}" for value in values)


def _indent(text: str) -> str:
    """Indent continuation lines so that they cannot be mistaken for entries of the surrounding list."""
    return "\n    ".join(truncate(make_printable(text).strip(), _MESSAGE_LIMIT).split("\n"))
