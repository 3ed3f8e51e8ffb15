"""Answers every role like a model that finds every third pair unclear. Identical prompts get identical replies."""

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
    "judge": "You cannot run the code",
    "repair": "You make a test program runnable",
}
_PROGRAM_REPLIES = {"repair": commands(), "simulate": json.dumps({"reason": "it is so", "status": "passed"})}
"""Replies for roles whose prompts contain a program but not the pair."""
# each message contains values that vary between runs, which prompts must hide
_NOISY = """import os, tempfile, time

# <candidate>


def test_pair_NUMBER():
    assert NUMBER == -1, f"{object()} after {time.time()} in {tempfile.mkdtemp()}, pid {os.getpid()}"
"""


def find_role(request: Request) -> str:
    """Return the role of a request, found by the beginning of its prompt."""
    return next(name for name, beginning in _ROLES.items() if beginning in request.prompt)


def make_answer(number_of: Callable[[Request], int]) -> Callable[[Request], Answer]:
    """Return a function that answers requests about numbered pairs."""

    def answer(request: Request) -> Answer:
        request_role = find_role(request)
        if request_role in _PROGRAM_REPLIES:
            return reply(_PROGRAM_REPLIES[request_role])
        number = number_of(request)
        if request_role == "screen":
            return reply(screen("unclear" if number % 3 == 0 else "match"))
        if request_role == "generate_test":
            return reply(program(_NOISY.replace("NUMBER", str(number))))
        return reply(label(zlib.crc32(request.prompt.encode()) % 2))

    return answer
