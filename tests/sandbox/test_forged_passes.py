"""Wrong snippets that change the helpers around them do not pass, and honest snippets raise no alarm."""

from __future__ import annotations

import pytest

from agent.languages.python.language import PythonLanguage
from agent.sandbox.base import Sandbox
from agent.types import Status, TestReport

HELPERS = """
import unittest
from dataclasses import dataclass
from functools import lru_cache, partial
from types import SimpleNamespace
from unittest import mock
def compare(a, b=1): assert a == b
def compare_within(a, b, *, tolerance=0): assert abs(a - b) <= tolerance
same = lambda a, b: a == b
almost = partial(compare_within, tolerance=0)
compare.strictly = lambda a: a == 1 and type(a) is int
if True:
    def compare_inside(a, b): assert a == b
    class Inside:
        def check(self, a, b): assert a == b
    def helps(self): return 0
@dataclass
class Point:
    x: int
class Base:
    def check(self, a, b): assert a == b
class Checker(Base):
    def __init__(self):
        self.calls, self.strict, self.on_call, self.handlers = 0, True, lambda: None, []
    def count(self, a, b):
        self.calls += 1
        self.on_call()
        assert a == b or not self.strict
checker, inside, tools = Checker(), Inside(), SimpleNamespace(same=lambda a, b: a == b)
check = checker.check
framework = unittest.TestCase()
equal = framework.assertEqual
ONE = 1
session = mock.MagicMock()
def hook(a): pass
hook = lambda a: None
@lru_cache(None)
def cached(): return 1
def one(): return 1
"""
WRONG = "def f(): return 0\n"
TRUE = "lambda *a, **k: True"


# the case's statement, and what follows the wrong snippet or replaces it
STOPPED = {
    "replaces a lambda": ("assert same(f(), 1)", f"same = {TRUE}"),
    "replaces a lambda when it is called": (
        "f()\n    assert same(f(), 1)", f"def f():\n    global same\n    same = {TRUE}"
    ),
    "replaces a function that returns a constant": ("assert f() == one()", "one = f"),
    "replaces a function inside an if": ("compare_inside(f(), 1)", f"compare_inside = {TRUE}"),
    "replaces a method inside an if": ("inside.check(f(), 1)", f"Inside.check = {TRUE}"),
    "replaces a function's attribute": ("assert compare.strictly(f())", f"compare.strictly = {TRUE}"),
    "replaces a partial function": ("almost(f(), 1)", f"almost = {TRUE}"),
    "changes a partial function's keywords": ("almost(f(), 1)", "almost.keywords['tolerance'] = 9"),
    "changes a partial function's function": ("almost(f(), 1)", "almost.__setstate__((print, (), {}, {}))"),
    "replaces an instance's method": ("checker.count(f(), 1)", f"checker.count = {TRUE}"),
    "replaces an instance's inherited method": ("checker.check(f(), 1)", f"checker.check = {TRUE}"),
    "replaces an instance": ("assert tools.same(f(), 1)", f"tools = SimpleNamespace(same={TRUE})"),
    "replaces a namespace's function": ("assert tools.same(f(), 1)", f"tools.same = {TRUE}"),
    "replaces a bound method": ("check(f(), 1)", f"check = {TRUE}"),
    "overrides an inherited method": ("checker.check(f(), 1)", f"Checker.check = {TRUE}"),
    "replaces a generated comparison": ("assert Point(f()) == Point(1)", f"Point.__eq__ = {TRUE}"),
    "changes a generated comparison": ("assert Point(f()) == Point(1)", f"Point.__eq__.__code__ = ({TRUE}).__code__"),
    "intercepts attributes": ("checker.check(f(), 1)", f"Base.__getattribute__ = lambda *a: {TRUE}"),
    "changes an instance's class": ("inside.check(f(), 1)", f"inside.__class__ = type('C', (), {{'check': {TRUE}}})"),
    "changes a class's bases": ("checker.check(f(), 1)", f"Checker.__bases__ = (type('C', (), {{'check': {TRUE}}}),)"),
    "changes a test case's method": ("framework.assertEqual(f(), 1)", f"framework.assertEqual = {TRUE}"),
    "changes a helper's defaults": ("compare(f())", "compare.__defaults__ = (0,)"),
    "changes keyword defaults": ("compare_within(f(), 1)", "compare_within.__kwdefaults__ = {'tolerance': 9}"),
    "changes one keyword default": ("compare_within(f(), 1)", "compare_within.__kwdefaults__['tolerance'] = 9"),
    "changes a lambda's code": ("assert same(f(), 1)", f"same.__code__ = ({TRUE}).__code__"),
    "changes a test's defaults": ("assert f() == expected", "test_a.__defaults__ = (0,)"),
}  # fmt: skip
# the case's statement, and a right snippet
HONEST = {
    "a counter that it resets": (
        "checker.count(f(), 1)\n    assert checker.calls == 1", "def f():\n    checker.calls = 0\n    return 1"
    ),
    "a fake that it registers with": (
        "g(checker)\n    checker.handlers[0]()\n    checker.on_call()\n    assert f.calls == 3",
        "def f(): f.calls += 1\nf.calls = 1\n"
        "def g(fake): fake.on_call, fake.latest, fake.strict = f, f, fake.handlers.append(f)",
    ),
    "a placeholder that it replaces": (
        "hook(f())\n    assert hook(0) == 2",
        "def f():\n    global hook\n    hook = lambda a: a + 2",
    ),
    "a helper that only it uses": ("assert f() == 1", "Inside.helps = lambda *a: 1\ndef f(): return inside.helps()"),
    "a method that the test replaces": (
        "checker.check = lambda a, b: 1\n    assert f() == 1 > checker.calls", "def f(): return checker.check(0, 2)"
    ),
    "a mock": (
        "assert f() == 1\n    session.get.assert_called_with()",
        "def f():\n    session.extra = session.get()\n    session.get.return_value = 2\n    return 1",
    ),
    "a cache": ("assert cached() == cached() == f()", "def f(): return cached.cache_info().hits"),
    "a global that the test replaces": (
        "global same\n    same = lambda a, b: a != b\n    assert same(f(), 0)", "def f(): return ONE"
    ),
}  # fmt: skip


async def judge(sandbox: Sandbox, snippet: str, case: str) -> TestReport:
    """Run a snippet between the helpers and a case. A case that the snippet changes comes first."""
    python = PythonLanguage()
    test = f"def test_a(expected=1):\n    {case}\n"
    before, after = (HELPERS + test, "") if "test_a." in snippet else (HELPERS, test)
    program = python.insert(f"{before}# <candidate>\n{after}", python.inspect(snippet))
    return python.report(program, await sandbox.run(python.job(program, environment=None, timeout=5)))


async def test_the_right_snippet_passes_with_every_helper(shared_sandbox: Sandbox) -> None:
    cases = dict.fromkeys(case for case, _ in STOPPED.values() if "f() == 2" not in case)
    report = await judge(shared_sandbox, "def f(): return 1", "\n    ".join(cases))
    assert (report.status, report.introspection) == (Status.PASSED, ())


@pytest.mark.parametrize(("case", "attack"), STOPPED.values(), ids=STOPPED)
async def test_an_attack_on_helpers_does_not_pass(shared_sandbox: Sandbox, case: str, attack: str) -> None:
    report = await judge(shared_sandbox, attack if "def f" in attack else WRONG + attack, case)
    assert report.status is not Status.PASSED
    assert (await judge(shared_sandbox, WRONG, case)).status is Status.FAILED


@pytest.mark.parametrize(("case", "snippet"), HONEST.values(), ids=HONEST)
async def test_a_snippet_may_change(shared_sandbox: Sandbox, case: str, snippet: str) -> None:
    report = await judge(shared_sandbox, snippet, case)
    assert (report.status, report.introspection) == (Status.PASSED, ()), report
