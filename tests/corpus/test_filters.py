"""Code is kept or removed as the papers describe, and code in other languages is found."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from agent.corpus.filters import FILTERS, NOT_PARSED, TRANSCRIPT, UNSUPPORTED, classify_foreign
from agent.languages.registry import Languages

LANGUAGES = Languages()
PYTHON = LANGUAGES["python"]


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
    assert FILTERS["cosqa-plus"](code, None, PYTHON) == reason


@pytest.mark.parametrize(
    ("language", "code", "reason"),
    [
        ("javascript", "function f(a) { return a; }", None),
        ("javascript", "function (a) { return null; }", None),
        ("javascript", "a => a", None),
        ("javascript", "async ({ a }, ...rest) => (a)", None),
        ("javascript", "/** Add. */\nexport const f = function (a = 1) {\n  if (a) return a;\n};", None),
        ("javascript", "add(a) {\n  return a;\n}", None),
        ("javascript", "A.prototype.f = function (a) { return a; };", None),
        ("javascript", "class A {\n  f(a) { return a; }\n}", None),
        ("javascript", "function* f(a) { yield a; }", "no return value"),
        ("javascript", "function f(a) { return /* nothing */; }", "no return value"),
        ("javascript", "function f(a) { a.map(b => { return b; }); }", "no return value"),
        ("javascript", "function f(/* none */) { return 1; }", "no input parameter"),
        ("javascript", "() => 1", "no input parameter"),
        ("javascript", "get a() { return 1; }", "no input parameter"),
        ("javascript", "describe('a', (b) => b);", "no function"),
        ("javascript", "const a = 1;", "no function"),
        ("javascript", "function f(a) { return a", NOT_PARSED),
        ("typescript", "function f<T>(this: T, a?: T): T { return a!; }", None),
        ("typescript", "function f(this: A): A { return this; }", "no input parameter"),
        ("typescript", "abstract class A { abstract f(a: B): C; }", "no function"),
        ("typescript", "const A = ({ b }: P) => <b>{b}</b>;", None),
        ("javascript", "const f = (a: number) => a;", NOT_PARSED),
        ("sql", "SELECT 1", UNSUPPORTED),
        ("sql", "the answer", NOT_PARSED),
    ],
)
def test_cosqa_plus_applies_to_other_languages(language: str, code: str, reason: str | None) -> None:
    assert FILTERS["cosqa-plus"](code, None, LANGUAGES[language]) == reason


@pytest.mark.real_data
def test_cosqa_plus_keeps_the_known_number_of_real_codes(real_data: Path) -> None:
    lines = (real_data / "cosqa_search_codes_6267.jsonl").read_text("utf-8").splitlines()
    codes = [json.loads(line)["code"] for line in lines]
    keep = FILTERS["cosqa-plus"]
    reasons = Counter(keep(code, None, PYTHON) for code in codes)
    assert (len(codes), reasons[None], reasons["does not parse"]) == (6267, 3971, 20)
    renamed = [re.sub(r"\(\s*(self|cls)\b", "(this", code, count=1) for code in codes]
    # `self` and `cls` would count as inputs
    assert sum(keep(code, None, PYTHON) is None for code in renamed) == 4438


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
    assert FILTERS["cosqa"](code, documentation, PYTHON) == reason


@pytest.mark.parametrize(
    ("language", "code", "reason"),
    [
        ("javascript", "/** Add. */\nadd(a) {\n  return a;\n}\n", None),
        ("javascript", "const x = 1;\nfunction f(a) {}", "incomplete"),
        ("javascript", "function f(", "incomplete"),
        ("javascript", "a => '\u2028'", None),
        ("sql", "-- All.\nSELECT *\nFROM t;", None),
        ("sql", "SELECT 1; SELECT 2", "incomplete"),
    ],
)
def test_cosqa_requires_one_function_in_any_language(language: str, code: str, reason: str | None) -> None:
    assert FILTERS["cosqa"](code, "Add.", LANGUAGES[language]) == reason


@pytest.mark.parametrize(
    ("language", "code", "kind"),
    [
        ("python", "x = 1", None),
        ("python", "print 'a'\nraise E, `b`", None),
        ("python", "def f():\n    '''\n>>> f()\n1\n'''", None),
        ("python", ">>> x = 1\n>>> x\n1", TRANSCRIPT),
        ("python", "In [1]: x = 5", TRANSCRIPT),
        ("python", "$ pip install x", TRANSCRIPT),
        ("python", "Python 2.7.3 (default)\n>>> 1\n1", TRANSCRIPT),
        ("python", "a transcript\n\nIn [12]: x", TRANSCRIPT),
        ("python", "def f():\n    '''\n    >>> f()", NOT_PARSED),
        ("python", "function f() { return 1; }", NOT_PARSED),
        ("python", "x = [" + "0777, " * 20, NOT_PARSED),
        ("javascript", "x = 1", None),
        ("javascript", "$ = f('x')", None),
        ("javascript", "$ npm install x", TRANSCRIPT),
        ("javascript", "type A = string;", NOT_PARSED),
        ("typescript", "type A = string;", None),
        ("sql", "-- x\nselect a from b where", None),
        ("sql", "def f(): pass", NOT_PARSED),
    ],
)
def test_transcripts_and_code_in_other_languages_are_found(language: str, code: str, kind: str | None) -> None:
    assert classify_foreign(code, LANGUAGES[language]) == kind
