"""Python 2 code is recognised as Python by a mechanical port of its syntax."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.corpus.filters import NOT_PARSED, filter_cosqa_plus
from agent.languages.python import source
from agent.languages.python.language import PythonLanguage
from agent.languages.python.source import TooLarge, Unparsable, parse_ported

PORTS = {
    "print 'é', 'b' % (\n  1),": "print('é', 'b' % 1)",
    "if a: print a; print": "if a:\n    print(a)\n    print",
    "exec code in space": "exec(code in space)",
    "try: a\nexcept (A, B), e: b": "try:\n    a\nexcept ((A, B), e):\n    b",
    "if a: raise E, 'b', c": "if a:\n    raise E\n    ('b', c)",
    "x = `a` + `b`": "x = a + b",
    "x = a <> b": "x = a != b",
    "x = 0777 + 00L": "x = 777 + 0",
    "x = [10L, 0xFFl]": "x = [10, 255]",
    "x = ur'a', UR'b'": "x = ('a', 'b')",
    "def f(a, (b, c)): d": "def f(a, b, c):\n    d",
    "f = lambda (a, b): a": "f = lambda a, b: a",
    "if a:\n        b\n\tc": "if a:\n    b\n    c",
    "print `a`, 0777L; raise E, a <> b": "(print(a), 777)\nraise E\na != b",
    "print('a')": "print('a')",
}


@pytest.mark.parametrize(("code", "ported"), PORTS.items())
def test_python_2_syntax_is_ported(code: str, ported: str) -> None:
    assert ast.unparse(parse_ported(code)) == ported


@given(codes=st.lists(st.sampled_from(list(PORTS)), min_size=1, max_size=6), newline=st.sampled_from(["\n", "\r\n"]))
def test_any_sequence_of_constructs_is_ported(codes: list[str], newline: str) -> None:
    expected = "\n".join(PORTS[code] for code in codes)
    assert ast.unparse(parse_ported(newline.join(codes))) == ast.unparse(ast.parse(expected))


@pytest.mark.parametrize("code", ["print 'a", "x = [`a`", "function f() { return 1 }", "SELECT 1 FROM a", "\0", "`a"])
def test_other_languages_and_damaged_code_are_not_ported(code: str) -> None:
    with pytest.raises(Unparsable):
        parse_ported(code)


def test_the_work_of_a_port_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "print 1\n" * 20
    assert len(parse_ported(code).body) == 20
    monkeypatch.setattr(source, "MAX_PORTED", 10 * len(code))
    with pytest.raises(TooLarge):
        parse_ported(code)
    with pytest.raises(TooLarge):
        parse_ported(code, len(code) - 1)


@pytest.mark.real_data
def test_all_python_2_code_of_cosqa_is_ported(real_data: Path) -> None:
    lines = (real_data / "cosqa_search_codes_6267.jsonl").read_text("utf-8").splitlines()
    changed = [
        code
        for code in (json.loads(line)["code"] for line in lines)
        if filter_cosqa_plus(code, PythonLanguage()) == NOT_PARSED
    ]
    assert (len(changed), all(map(parse_ported, changed))) == (20, True)
