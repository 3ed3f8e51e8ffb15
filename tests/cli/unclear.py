"""Answers every role as a model might that finds each third pair unclear; the same question is answered alike."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable

from tests.cli.commands import reply
from tests.llm.server import Answer, Request
from tests.scripts import commands, label, program, screen

_ROLES = {
    "screen": "You are the first of several annotators",
    "generate_test": "You write a test program",
    "simulate": "You predict what a test program does",
    "arbitrate": "You are the final arbiter",
    "judge": "You cannot run the code: reason it through",
    "repair": "You make a test program runnable",
    "specify_query": "You say what a search query for code may mean",
    "scaffold": "You write what a code snippet needs around it",
    "generate_blind": "You write the test cases of a program",
}
_OF_THE_PROGRAM = {"repair": commands(), "simulate": json.dumps({"reason": "it is so", "status": "passed"})}
"""Whose prompts are about a program and do not name the pair."""
# What differs from run to run is in each message; what a prompt shows of it is the same every time.
_NOISY = """import os, tempfile, time

# <candidate>


def test_pair_NUMBER():
    assert NUMBER == -1, f"{object()} after {time.time()} in {tempfile.mkdtemp()}, pid {os.getpid()}"
"""


def role(request: Request) -> str:
    """Return the role that is asked, told by how its prompt begins."""
    return next(name for name, beginning in _ROLES.items() if beginning in request.prompt)


def third_unclear_of(number_of: Callable[[Request], int]) -> Callable[[Request], Answer]:
    """Return the answers to questions about numbered pairs."""

    def answer(request: Request) -> Answer:
        asked = role(request)
        if asked in _OF_THE_PROGRAM:
            return reply(_OF_THE_PROGRAM[asked])
        number = number_of(request)
        noisy = _NOISY.replace("NUMBER", str(number))
        replies: dict[str, Callable[[], str]] = {
            "screen": lambda: screen("unclear" if number % 3 == 0 else "match"),
            "generate_test": lambda: program(noisy),
            "specify_query": lambda: json.dumps({"readings": [{"reading": "Do it.", "requirements": ["It does it."]}]}),
            "scaffold": lambda: program("# <candidate>\n"),
            "generate_blind": lambda: program(noisy.replace("# <candidate>\n", "")).replace('"a sum"', "1"),
        }
        verdict = label(zlib.crc32(request.prompt.encode()) % 2)
        return reply(replies[asked]() if asked in replies else verdict)

    return answer
