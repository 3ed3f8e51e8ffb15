"""Replies and execution results for scripted pipelines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agent.sandbox.base import Environment, Frame, ReportLine, RunResult, SandboxJob
from agent.types import Pair

PAIR = Pair(id="1", query="add two numbers", code="def add(a, b):\n    return a + b\n")
PROGRAM = """# <candidate>


def test_small():
    assert add(1, 2) == 3


def test_negative():
    assert add(-1, -2) == -3
"""
_NAME_ERROR = ("NameError", "name 'one' is not defined", (Frame("program.py", 9, "<module>"),))
UNDEFINED_NAME = RunResult((ReportLine("load", "", "error", *_NAME_ERROR), ReportLine("end")))
"""The result of a program that uses an undefined name."""


def screen(verdict: str = "unclear", reason: str = "look") -> str:
    return json.dumps({"reason": reason, "verdict": verdict})


def label(value: int, reason: str = "because") -> str:
    return json.dumps({"reason": reason, "label": value})


def program(source: str = PROGRAM, stand_ins: Sequence[str] = (), fence: str = "python") -> str:
    head = json.dumps({"reading": "a sum", "stand_ins": list(stand_ins)})
    return f"```json\n{head}\n```\n```{fence}\n{source}```\n"


def make_replies(source: str = PROGRAM, value: int = 1, **more: Any) -> dict[str, Any]:
    """Return replies for an unclear pair: a program, the label `value`, and `more` by role."""
    return {"screen": [screen()], "generate_test": [program(source)], "arbitrate": [label(value)], **more}


def commands(*lines: str) -> str:
    return "```bash\n" + "".join(f"{line}\n" for line in lines) + "```\n"


def pass_all(job: SandboxJob) -> RunResult:
    """Return a result in which every case of the job passed."""
    records = [r for name in job.cases for r in (ReportLine("start", name), ReportLine("case", name, "passed"))]
    return RunResult((*records, ReportLine("end")))


def fail_all(job: SandboxJob) -> RunResult:
    """Return a result in which the assertion of every case failed."""
    frames = (Frame("program.py", 99, "test"),)
    records = [
        record
        for name in job.cases
        for record in (ReportLine("start", name), ReportLine("case", name, "failed", "AssertionError", "no", frames))
    ]
    return RunResult((*records, ReportLine("end")))


def fail_import(module: str) -> RunResult:
    """Return a result in which a module could not be imported."""
    frames = (Frame("program.py", 1, "<module>"),)
    record = ReportLine("load", "", "error", "ModuleNotFoundError", f"No module named '{module}'", frames)
    return RunResult((record, ReportLine("end")))


def environment(requirements: Sequence[str]) -> Environment:
    """Return an environment with the requirements."""
    return Environment("k" + "".join(requirements), tuple(requirements), tuple(f"{name}==1" for name in requirements))
