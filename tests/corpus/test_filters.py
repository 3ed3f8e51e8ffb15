"""Codes are kept or removed as the papers describe, and other languages are recognised."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from agent.corpus.filters import FILTERS, NOT_PARSED, TRANSCRIPT, classify_non_python, filter_cosqa_plus


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def f(a): return a", None),
        ("async def f(a):\n    if a:\n        return a", None),
        ("def f(a): return None", None),
        ("def f(*args): return 1", None),
        ("def f(**kwargs): return 1", None),
        ("def f(self, a): return 1", None),
        ("def f(a):\n    yield 1\n    return 2", None),
        ("import b\nx = 1\ndef f(a): return b\ndef g(): pass", None),
        ("def f(): return 1", "no input parameter"),
        ("def f(self): return 1", "no input parameter"),
        ("def f(): return 1\ndef g(a): return a", "no input parameter"),
        ("def f(a): pass", "no return value"),
        ("def f(a): return", "no return value"),
        ("def f(a): yield a", "no return value"),
        ("def f(a):\n    def g(): return 1", "no return value"),
        ("class A:\n    def f(self, a): return a", "no function"),
        ("def f(a): print a; return a", "does not parse"),
    ],
)
def test_cosqa_plus_requires_an_input_and_a_return_value(code: str, reason: str | None) -> None:
    assert filter_cosqa_plus(code) == reason


@pytest.mark.real_data
def test_cosqa_plus_keeps_the_known_number_of_real_codes(real_data: Path) -> None:
    lines = (real_data / "cosqa_search_codes_6267.jsonl").read_text("utf-8").splitlines()
    codes = [json.loads(line)["code"] for line in lines]
    reasons = Counter(map(filter_cosqa_plus, codes))
    assert (len(codes), reasons[None], reasons["does not parse"]) == (6267, 3971, 20)
    renamed = [re.sub(r"\(\s*(self|cls)\b", "(this", code, count=1) for code in codes]
    assert sum(filter_cosqa_plus(code) is None for code in renamed) == 4438  # `self` and `cls` would count as inputs.


COMPLETE = "def f(a):\n    return a"


@pytest.mark.parametrize(
    ("code", "documentation", "reason"),
    [
        (COMPLETE, "Return the same.", None),
        (COMPLETE, "Return “the” same value – unchanged. See https://example.org.", None),
        (COMPLETE, None, "no documentation"),
        (COMPLETE, 'Draw <img src="a">.', "image or link in the documentation"),
        (COMPLETE, "See http://example.org.", "image or link in the documentation"),
        (COMPLETE, "返回相同的值", "documentation is not English"),
        (COMPLETE, "a" * 9 + "é", None),
        (COMPLETE, "a" * 8 + "éé", "documentation is not English"),
        (f"import b\n{COMPLETE}", "Return a.", "incomplete"),
        (f"{COMPLETE}\n{COMPLETE}", "Return a.", "incomplete"),
    ],
)
def test_cosqa_requires_english_documentation_and_one_function(
    code: str, documentation: str | None, reason: str | None
) -> None:
    assert FILTERS["cosqa"](code, documentation) == reason


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("x = 1", None),
        ("print 'a'\nraise E, `b`", None),
        ("def f():\n    '''\n>>> f()\n1\n'''", None),
        (">>> x = 1\n>>> x\n1", TRANSCRIPT),
        ("In [1]: x = 5", TRANSCRIPT),
        ("$ pip install x", TRANSCRIPT),
        ("Python 2.7.3 (default)\n>>> 1\n1", TRANSCRIPT),
        ("a transcript\n\nIn [12]: x", TRANSCRIPT),
        ("def f():\n    '''\n    >>> f()", NOT_PARSED),
        ("function f() { return 1; }", NOT_PARSED),
        ("x = [" + "0777, " * 20, NOT_PARSED),
    ],
)
def test_transcripts_and_other_languages_are_not_python(code: str, kind: str | None) -> None:
    assert classify_non_python(code) == kind
