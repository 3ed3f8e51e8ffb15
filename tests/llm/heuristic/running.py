"""Writes programs as the pipeline would, and runs them in one process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from agent.languages.base import Program
from agent.languages.python import PythonLanguage
from agent.llm.heuristic.generation import generate_reply
from agent.llm.parsing import ProgramReply, parse_program

_RUNNER = """
import asyncio, json, sys
for source in json.load(sys.stdin):
    outcomes, names = {}, {"__name__": "program"}
    try:
        exec(compile(source, "program.py", "exec"), names)
    except Exception as error:
        outcomes["load"] = repr(error)
    for name in [name for name in names if name.startswith("test_") and callable(names[name])]:
        try:
            names[name]()
            outcomes[name] = "passed"
        except AssertionError as error:
            outcomes[name] = "failed"
        except BaseException as error:
            outcomes[name] = repr(error)
    print(json.dumps(outcomes), file=sys.__stdout__)
"""

LANGUAGE = PythonLanguage()


def variables(query: str, code: str, **more: Any) -> dict[str, Any]:
    """Return the variables of a call about a pair."""
    pair = {"query": query, "code": code, "language": "python", "fence": "python", "context": None}
    return {**pair, "criterion": "exact", "marker": LANGUAGE.marker, "advice": (), **more}


def written(query: str, code: str) -> tuple[ProgramReply, Program]:
    """Return the reply that asks for a test, as it is parsed, and the program with the snippet in place."""
    reply = parse_program(generate_reply(variables(query, code)), "python")
    return reply, LANGUAGE.insert(reply.template, LANGUAGE.inspect(code))


def run(sources: Sequence[str]) -> list[dict[str, str]]:
    """Run programs one after another; each gives its cases' outcomes: passed, failed, or the exception's text."""
    command = [sys.executable, "-I", "-c", _RUNNER]
    with tempfile.TemporaryDirectory() as folder:  # for what the programs leave behind
        finished = subprocess.run(
            command,
            input=json.dumps(sources),
            capture_output=True,
            text=True,
            timeout=60,
            cwd=folder,
            env={**os.environ, "TMPDIR": folder},
        )
    assert finished.returncode == 0, finished.stderr
    return [json.loads(line) for line in finished.stdout.splitlines() if line.startswith("{")]


def outcomes(query: str, code: str) -> dict[str, str]:
    """Return how the cases of one pair's program end."""
    return run([written(query, code)[1].source])[0]
