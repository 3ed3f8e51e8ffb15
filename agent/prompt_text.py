"""Puts values of a pair and of an execution into words and between delimiters, for prompts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

from agent.types import QuerySpec, Simulated, TestReport

LIMITS: Mapping[str, int] = {
    "query": 2_000,
    "code": 24_000,
    "context": 8_000,
    "program": 32_000,
    "output": 6_000,
    "report": 8_000,
    "history": 8_000,
}
OTHER_LIMIT = 4_000
_MESSAGE_LIMIT = 600
_LISTED_CASES = 40
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f"  # control characters; tab, newline and form feed belong to code
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # directions, joiners, separators
    "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\ufe00-\ufe0f"  # fillers and selectors
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"  # tags, which spell ASCII out of sight
)


def replace_surrogates(text: str) -> str:
    """Return the text fit for UTF-8: halves of a surrogate pair are joined, lone ones become U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def truncate(text: str, limit: int) -> str:
    """Return the text with its middle left out, and a note in place of it, when it is longer than `limit`."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    left_out = len(text) - limit
    return f"{text[:head]}\n[... {left_out:,} characters left out here ...]\n{text[len(text) - (limit - head) :]}"


def make_printable(text: str) -> str:
    """Return the text fit to be read: newlines as LF, lone surrogates as U+FFFD, and what has no shape as its escape.

    Control characters become `\\x1b`; those that steer the direction of writing, have no width or are tags become
    `\\u202e` or `\\U000e0041`. A reader, model or person, then sees all that is there, in the order in which it is run.
    A byte-order mark at the beginning is left out, as it is when code is run.
    """
    text = replace_surrogates(text).replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    return _INVISIBLE.sub(lambda unseen: _escape(ord(unseen[0])), text)


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def fit(text: str, name: str) -> str:
    """Return the text as the block `name` shows it: printable, and no longer than the block may be."""
    return truncate(make_printable(text), LIMITS.get(name, OTHER_LIMIT))


def delimit(blocks: Sequence[tuple[str, str]], around: str = "") -> list[str]:
    """Return each (name, fitted text) between tags whose id stands in none of the texts, nor `around` them.

    An id depends on nothing but its own name and text, unless a text holds it: the beginnings of prompts stay equal.
    """
    taken = "\n".join([around, *(text for _, text in blocks)]).lower()
    tagged = []
    for name, text in blocks:
        counter = 0
        while (identity := hashlib.sha256(f"{name}\0{counter}\0{text}".encode()).hexdigest()[:12]) in taken:
            counter += 1
        taken += f"\n{identity}"
        tagged.append(f'<{name} id="{identity}">\n{text}\n</{name} id="{identity}">')
    return tagged


def describe_report(report: TestReport) -> str:
    """Return an execution report as lines of text, without anything that changes from run to run."""
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
    """Return the commands tried so far, each with its outcome and the output indented below."""
    lines = []
    for run in history:
        lines.append(f"$ {_indent(run['command'])}  [{run['outcome']}]")
        if run["output"]:
            lines.append(f"    {_indent(run['output'])}")
    return "\n".join(lines)


def describe_simulation(simulated: Simulated) -> str:
    """Return a predicted outcome as text."""
    return f"status: {simulated.status}\nreason: {simulated.reason}"


def describe_spec(spec: QuerySpec) -> str:
    """Return the readings of a query by number, each with what it requires below it."""
    lines = []
    for number, reading in enumerate(spec.readings, 1):
        lines.append(f"{number}. {_indent(reading.text)}")
        lines += [f"   - {_indent(requirement)}" for requirement in reading.requirements]
    return "\n".join(lines)


def describe_list(values: tuple[str, ...]) -> str:
    """Return one line for each value (further lines of it indented)."""
    return "\n".join(f"- {_indent(value)}" for value in values)


def _indent(text: str) -> str:
    """Return a text whose further lines cannot pass for lines of the list that it stands in."""
    return "\n    ".join(truncate(make_printable(text).strip(), _MESSAGE_LIMIT).split("\n"))
