"""A signature is what a caller may know; surroundings are what scaffolding defines; neither holds the body."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.languages.base import MalformedProgram, Snippet
from agent.languages.python import PythonLanguage

LANGUAGE = PythonLanguage()


def signature(code: str) -> str | None:
    return LANGUAGE.signature(LANGUAGE.inspect(code))


def surroundings(scaffold: str, code: str = "def f(a):\n    return SECRET + sorted(a)\n") -> str:
    return LANGUAGE.surroundings(scaffold, LANGUAGE.inspect(code))


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("def f(a, b: int = 3, *c, d=None, **e) -> str:\n    'doc'\n    return a",
         "def f(a, b: int=3, *c, d=None, **e) -> str:\n    ..."),
        ("import re\nX = 5\n@wraps(g)\nasync def f(): # note\n    yield X", "@wraps(g)\nasync def f():\n    ..."),
        ("def f():\n    def inner(): pass\n    class Inner: pass", "def f():\n    ..."),
        ("class A(B, metaclass=M):\n  'doc'\n  x: int = 1\n  def __init__(self, z): pass\n  def _own(self): pass",
         "class A(B, metaclass=M):\n\n    def __init__(self, z):\n        ..."),
        ("@dataclass\nclass P:\n    x: int = 1\n    y = 2", "@dataclass\nclass P:\n    x: int = 1"),
        ("class E(Exception):\n    'doc'", "class E(Exception):\n    ..."),
        ("def f(): pass\ndef g(): pass", "def f():\n    ...\n\ndef g():\n    ..."),
        ("print(1)", None),
        ("x = lambda a: a", None),
        ("return 3", None),
        ("def f(:", None),
    ],
)  # fmt: skip
def test_a_signature_leaves_the_body_out(code: str, left: str | None) -> None:
    assert signature(code) == left


@pytest.mark.parametrize("code", ["def f(a=" + "-" * 5000 + "1): pass", "def f(a=" + "(" * 150 + ")" * 150 + "): pass"])
def test_a_hostile_signature_is_none_or_parses(code: str) -> None:
    found = signature(code)
    assert found is None or ast.parse(found)


def test_a_signature_can_stand_in_the_snippets_place() -> None:
    found = signature("class A:\n    @property\n    def x(self): return 1\n    async def y(self): return await z()\n")
    assert found is not None
    program = "# <candidate>\n\ndef test_x():\n    assert A().x == 1\n"
    assert LANGUAGE.insert(program, Snippet(found)).cases == ("test_x",)


def test_surroundings_are_what_is_defined_around_the_marker() -> None:
    scaffold = '''"""Sorts by SECRET."""
from __future__ import annotations
import numpy as np  # for sorted(a)

class Board:
    """Sorts."""
    def __init__(self, scores=(1, 2)):
        import os
        self.scores = scores  # SECRET

    # <candidate>

SIZE = 3
'''
    assert surroundings(scaffold) == (
        "class Board:\n\n    def __init__(self, scores=(1, 2)):\n        self.scores = scores\n"
        "    # <candidate>\nSIZE = 3"
    )


def test_surroundings_of_imports_alone_are_empty() -> None:
    assert surroundings("import re\n# sorted(a)\n# <candidate>\n") == ""


def test_a_class_around_the_marker_alone_is_shown() -> None:
    assert surroundings("class Board:\n    # <candidate>\n") == "class Board:\n    # <candidate>"


@pytest.mark.parametrize(
    ("scaffold", "why"),
    [
        ("# <candidate>\ndef test_a():\n    assert f([])\n", "holds the test case `test_a`"),
        ("class T:\n    def test_a(self):\n        pass\n# <candidate>\n", "holds the test case `test_a`"),
        ("def g(a):\n    return SECRET + sorted(a)\n# <candidate>\n", "repeats `return SECRET"),
        ("def f(a):\n    return a\n# <candidate>\n", "defines or replaces `f`"),
        ("SECRET = []\n", "stands nowhere"),
        ("if True:\n# <candidate>\n", "does not parse"),
    ],
)
def test_scaffolding_that_is_more_or_less_is_refused(scaffold: str, why: str) -> None:
    with pytest.raises(MalformedProgram, match=why):
        surroundings(scaffold)


def test_what_every_class_says_is_no_copy() -> None:
    body = "    def __init__(self, x):\n        super().__init__()\n        self.x = x\n"
    code = f"class A(B):\n{body}    def g(self): return x(1)\n"
    assert "class B" in surroundings(f"class B:\n{body}# <candidate>\n", code)


@given(st.text())
def test_no_text_makes_a_signature_raise(code: str) -> None:
    found = signature(code)
    assert found is None or ast.parse(found)
