"""Signatures of snippets and surroundings of scaffolding contain no bodies."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.languages.base import MalformedProgram, Snippet
from agent.languages.python.language import PythonLanguage

LANGUAGE = PythonLanguage()


def signature(code: str) -> str | None:
    return LANGUAGE.signature(LANGUAGE.inspect(code))


def surroundings(scaffold: str, code: str = "def f(a):\n    return SECRET + sorted(a)\n") -> str:
    return LANGUAGE.surroundings(scaffold, LANGUAGE.inspect(code))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def f(a, b: int = 3, *c, d=None, **e) -> str:\n    'doc'\n    return a",
         "def f(a, b: int=3, *c, d=None, **e) -> str:\n    ..."),
        ("import re\nX = 5\n@wraps(g)\nasync def f(): # note\n    yield X", "@wraps(g)\nasync def f():\n    ..."),
        ("class A(B, metaclass=M):\n  'doc'\n  x: int = 1\n  def __init__(self, z): pass\n  def _own(self): pass",
         "class A(B, metaclass=M):\n\n    def __init__(self, z):\n        ..."),
        ("@dataclass\nclass P:\n    x: int = 1\n    y = 2", "@dataclass\nclass P:\n    x: int = 1"),
        ("def f(): pass\ndef g(): pass", "def f():\n    ...\n\ndef g():\n    ..."),
        ("if V3:\n    def f(x):\n        return x * 2\nelse:\n    def f(x, y):\n        return 2 * x",
         "def f(x):\n    ...\n\ndef f(x, y):\n    ..."),
        ("try:\n    import a\n    class A:\n        def g(self): return 1\nexcept ImportError:\n"
         "    class A:\n        def g(self): return 2", "class A:\n\n    def g(self):\n        ..."),
        ("def f(a=lambda b=2: b * 4711, c=[d + 1 for d in E]): pass",
         "def f(a=lambda b=2: ..., c=...):\n    ..."),
        ("@cache(lambda k: k.secret)\ndef f(x): pass", "@cache(lambda k: ...)\ndef f(x):\n    ..."),
        ("class T(type('X', (), {'run': lambda self: 99})): pass",
         "class T(type('X', (), {'run': lambda self: ...})):\n    ..."),
        ("if __name__ == '__main__':\n    def f(): pass", None),
        ("print(1)", None),
        ("x = lambda a: a", None),
        ("return 3", None),
        ("def f(:", None),
    ],
)  # fmt: skip
def test_a_signature_excludes_the_body(code: str, expected: str | None) -> None:
    assert signature(code) == expected


@pytest.mark.parametrize("code", ["def f(a=" + "-" * 5000 + "1): pass", "def f(a=" + "(" * 150 + ")" * 150 + "): pass"])
def test_a_hostile_signature_is_none_or_parses(code: str) -> None:
    signature = LANGUAGE.signature(Snippet(code))
    assert signature is None or ast.parse(signature)


def test_surroundings_are_signatures_of_the_scaffolding() -> None:
    scaffold = '''"""Sorts by SECRET."""
from __future__ import annotations
import numpy as np  # for sorted(a)

class Board(Base):
    """Sorts."""
    size: int = 3
    kind = "sorted"
    def __init__(self, scores=(1, 2), *, note: "SECRET" = "sorted") -> None:
        import os
        self.scores = scores  # SECRET

    # <candidate>

    @given(lambda a: SECRET, "sorted")
    def _given(self):
        return SECRET + sorted(self)

if True:
    LIMIT = 3
def helper(a, b=SECRET):
    return SECRET + sorted(a)
print("sorted")
'''
    assert surroundings(scaffold) == (
        "class Board(Base):\n    size: int = ...\n    kind = ...\n\n"
        "    def __init__(self, scores=..., *, note: ...=...) -> None:\n        ...\n    # <candidate>\n\n"
        "    @given(lambda a: ..., ...)\n    def _given(self):\n        ...\n\n"
        "LIMIT = ...\n\ndef helper(a, b=...):\n    ..."
    )


@pytest.mark.parametrize("scaffold", ["import re\n# sorted(a)\n# <candidate>\n", "'sorted'\n# <candidate>\nprint(1)\n"])
def test_surroundings_that_define_nothing_are_empty(scaffold: str) -> None:
    assert surroundings(scaffold) == ""


@pytest.mark.parametrize(
    ("scaffold", "message"),
    [
        ("# <candidate>\ndef test_a():\n    assert f([])\n", "test case `test_a`"),
        ("class T:\n    def test_a(self):\n        pass\n# <candidate>\n", "test case `test_a`"),
        ("SECRET = []\n", "is missing"),
        ("if True:\n# <candidate>\n", "does not parse"),
    ],
)
def test_invalid_scaffolding_is_rejected(scaffold: str, message: str) -> None:
    with pytest.raises(MalformedProgram, match=message):
        surroundings(scaffold)


@given(st.text())
def test_no_text_makes_a_signature_raise(code: str) -> None:
    parsed_signature = signature(code)
    assert parsed_signature is None or ast.parse(parsed_signature)
