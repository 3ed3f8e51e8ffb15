"""Deterministic model replies with token counts. The screener finds three of ten pairs unclear."""

from __future__ import annotations

import json
import re
import zlib

from tests.cli.commands import reply
from tests.llm.server import Answer, Request
from tests.scripts import label, program

_TOKEN = re.compile(r" ?[^\W\d_]{1,6}|\d{1,3}|_+|[^\w\s]{1,2}|\s+")


def count_tokens(text: str) -> int:
    """Count tokens as a tokenizer would: word pieces, digits, punctuation and white space."""
    return len(_TOKEN.findall(text))


def reply_with_usage(request: Request) -> Answer:
    """Reply as the requested role. Reply lengths vary."""
    chance = zlib.crc32(request.body["messages"][-1]["content"].encode())
    reason = "because " * (10 + chance % 40)
    if "You are the first of several annotators" in request.prompt:
        verdict = "unclear" if chance % 10 < 3 else "match" if chance % 2 else "non_match"
        text = json.dumps({"reason": reason, "verdict": verdict})
    elif "You write a test program" in request.prompt:
        cases = "".join(f"def test_{n}():\n    assert {n} == {n}\n\n\n" for n in range(2 + chance % 15))
        text = program(f"# <candidate>\n\n\n{cases}")
    else:
        text = label(chance % 2, reason)
    sizes = {"prompt_tokens": count_tokens(request.prompt), "completion_tokens": count_tokens(text)}
    return reply(text, **sizes)
