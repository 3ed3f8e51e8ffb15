"""Snippets whose parts must be kept, and programs around them."""

from __future__ import annotations

from agent.languages.base import Program
from agent.languages.python import PythonLanguage

LANGUAGE = PythonLanguage()
IMPORTS = (
    "import sys\nimport unittest.mock as mock\nimport __main__ as own\n"
    "from unittest.mock import patch, patch as swap\nfrom __main__ import C as Taken\n"
)
FUNCTION = "def f(x, step=0):\n    return x + step\n"
CLASS = """
import collections
from collections import defaultdict

made = lambda: 1

class Base:
    def near(self):
        return 0

class C(Base):
    limit: int = 3
    kept = None
    names = ['a', -1]
    told: str
    seen = set()
    queue = collections.deque()
    groups = defaultdict(list)
    given, also = {}, made()
    twice = 1
    twice = 2
    grown = []
    grown += [1]

    class Inner:
        def deep(self):
            return 1

    def __init__(self, on_end=None):
        self.x = 1
        self.on_end = on_end or self.on_end

    def m(self):
        return self.x

    def on_end(self):
        pass

    @property
    def size(self):
        return self.x

    @staticmethod
    def plain():
        return 1

    if True:
        def other(self):
            return 2

    def __helper(self):
        return 1

    __hidden = 2

class _Derived(C):
    class __Deep:
        def __helper(self):
            return 1

    def __own(self):
        return 1

class Calling:
    def __init__(self, on_end=None):
        if on_end:
            self.on_end = self.__done = on_end

    def __done(self):
        pass

class Called(Calling):
    def on_end(self):
        return 1

    def __done(self):
        return 1

class Entered:
    def __enter__(self):
        return self

    def m(self):
        return 1

class Lent(Entered):
    def __enter__(self):
        return self.given

class Kept(Entered):
    pass

class __:
    def __same(self):
        return 1
"""
METHOD = "def m(self):\n    return self.x\n"
STAND_IN = (
    "class C:\n    def __init__(self, x=1):\n        self.x = x\n\n    # <candidate>\n\n"
    "    def fake(self):\n        pass\n"
)


def program(code: str, line: str = "pass", template: str = "# <candidate>\n") -> Program:
    return LANGUAGE.insert(f"{IMPORTS}{template}\ndef test_a():\n    assert 1\n    {line}\n", LANGUAGE.inspect(code))


def places(line: str) -> tuple[str, ...]:
    """Write a line into a fixture, a module and a class's method."""
    inner = line.replace("\n", "\n    ")
    return (f"def given():\n    {inner}\n", f"{line}\n", f"class Given:\n    def setUp(self):\n        {inner}\n")
