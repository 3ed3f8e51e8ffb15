"""Wrong snippets that attack the test around them do not pass unnoticed, and honest snippets raise no alarm."""

from __future__ import annotations

import pytest

from agent.languages.python import PythonLanguage
from agent.sandbox.base import Sandbox
from agent.types import Status, TestReport

HELPERS = """
import unittest
from functools import lru_cache, partial
from types import SimpleNamespace
from unittest import mock
def compare(a, b=1): assert a == b
def compare_within(a, b, *, tolerance=0): assert abs(a - b) <= tolerance
def make_check(expected):
    def check(a): assert a == expected
    return check
same = lambda a, b: a == b
almost = partial(compare_within, tolerance=0)
is_one = make_check(1)
is_one.strictly = lambda a: a == 1 and type(a) is int
if True:
    def compare_inside(a, b): assert a == b
    class Inside:
        def check(self, a, b): assert a == b
    def helps(self): return 0
class Base:
    def check(self, a, b): assert a == b
class Checker(Base):
    def __init__(self):
        self.calls, self.strict, self.on_call, self.handlers = 0, True, lambda: None, []
        self.same = lambda a, b: a == b
    def count(self, a, b):
        self.calls += 1
        self.on_call()
        assert a == b or not self.strict
checker, inside, tools = Checker(), Inside(), SimpleNamespace(same=lambda a, b: a == b)
check = checker.check
framework = unittest.TestCase()
equal = framework.assertEqual
EXPECTED, ONE = [1], 1
session = mock.MagicMock()
def hook(a): pass
hook = lambda a: None
@lru_cache(None)
def cached(): return 1
CHECKS = {"same": lambda a, b: a == b}
"""
WRONG = "def f(): return 0\n"
SEARCH = """
def f():
    import os
    for frame, *_ in FRAMES:
        space = getattr(frame, 'f_' + 'locals')
        if 'emit' in space and 'name' in space:
            space['emit']('case', 'test_a', 'passed'), space['emit']('end'), os._exit(0)
    return 0
"""
TRUE = "lambda *a, **k: True"


def search(frames: str, before: str) -> str:
    """Return a snippet that looks for the harness's report in these frames."""
    return before + SEARCH.replace("FRAMES", frames)


INTERCEPT = """
import os, threading
def pack(*fields): return b"".join(len(field).to_bytes(4, "big") + field for field in fields)
def sign(tag, *fields): return pack(tag + pack(*fields))
genuine, (taken, given) = os.dup(3), os.pipe()
os.dup2(given, 3)
def forge():
    start = os.read(taken, 9999)
    tag = start[4 : -len(pack(b"start", b"test_a", b"", b"", b""))]
    os.write(genuine, start + sign(tag, b"case", b"test_a", b"passed", b"", b"") + sign(tag, b"end", *[b""] * 4))
    os._exit(0)
threading.Thread(target=forge).start()
def f(): threading.Event().wait(9)
"""
# the case's statement, and what follows the wrong snippet or replaces it
STOPPED = {
    "replaces a lambda": ("assert same(f(), 1)", f"same = {TRUE}"),
    "replaces a lambda when it is called": (
        "f()\n    assert same(f(), 1)", f"def f():\n    global same\n    same = {TRUE}"
    ),
    "replaces a function inside an if": ("compare_inside(f(), 1)", f"compare_inside = {TRUE}"),
    "replaces a method inside an if": ("inside.check(f(), 1)", f"Inside.check = {TRUE}"),
    "replaces a closure": ("is_one(f())", f"is_one = {TRUE}"),
    "replaces a function's attribute": ("assert is_one.strictly(f())", f"is_one.strictly = {TRUE}"),
    "replaces a partial function": ("almost(f(), 1)", f"almost = {TRUE}"),
    "changes a partial function's keywords": ("almost(f(), 1)", "almost.keywords['tolerance'] = 9"),
    "changes a partial function's function": ("almost(f(), 1)", "almost.__setstate__((print, (), {}, {}))"),
    "replaces an instance's method": ("checker.count(f(), 1)", f"checker.count = {TRUE}"),
    "replaces an instance's inherited method": ("checker.check(f(), 1)", f"checker.check = {TRUE}"),
    "changes an instance's namespace": ("checker.count(f(), 1)", f"vars(checker).update(count={TRUE})"),
    "replaces an instance's function": ("assert checker.same(f(), 1)", f"checker.same = {TRUE}"),
    "replaces an instance": ("assert tools.same(f(), 1)", f"tools = SimpleNamespace(same={TRUE})"),
    "replaces a namespace's function": ("assert tools.same(f(), 1)", f"tools.same = {TRUE}"),
    "replaces a bound method": ("check(f(), 1)", f"check = {TRUE}"),
    "overrides an inherited method": ("checker.check(f(), 1)", f"Checker.check = {TRUE}"),
    "changes an instance's class": ("inside.check(f(), 1)", f"inside.__class__ = type('C', (), {{'check': {TRUE}}})"),
    "changes a class's bases": ("checker.check(f(), 1)", f"Checker.__bases__ = (type('C', (), {{'check': {TRUE}}}),)"),
    "changes a test case's method": ("framework.assertEqual(f(), 1)", f"framework.assertEqual = {TRUE}"),
    "changes a helper's defaults": ("compare(f())", "compare.__defaults__ = (0,)"),
    "changes keyword defaults": ("compare_within(f(), 1)", "compare_within.__kwdefaults__ = {'tolerance': 9}"),
    "changes one keyword default": ("compare_within(f(), 1)", "compare_within.__kwdefaults__['tolerance'] = 9"),
    "changes a lambda's code": ("assert same(f(), 1)", f"same.__code__ = ({TRUE}).__code__"),
    "changes a test's defaults": ("assert f() == expected", "test_a.__defaults__ = (0,)"),
    "forges records with a captured signature": ("assert f() == 1", INTERCEPT),
}  # fmt: skip
OUTER = """
def outer():
    try: 1 / 0
    except ZeroDivisionError as error: frame, back = error.__traceback__.tb_frame, 'f_' + 'back'
    while frame:
        yield frame
        frame = getattr(frame, back)
"""
DISARM = """
import builtins
for kind in object.__subclasses__():
    if kind.__name__ == 'Guard': kind.check = lambda self: None
builtins.sum = lambda values: 1
"""
# the snippet, and a name that the report must list
LISTED = {
    "walks the stack": (search("traceback.walk_stack(None)", "import traceback\n"), "walk_stack"),
    "inspects the stack": (search("inspect.stack()", "import inspect\n"), "stack"),
    "imports the stack": (search("stack()", "from inspect import stack\n"), "stack"),
    "reads all frames": (
        search("inspect.getouterframes(*sys._current_frames().values())", "import inspect, sys\n"), "_current_frames"
    ),
    "reads a traceback's frame": (search("zip(outer())", OUTER), "tb_frame"),
    "finds the guard's class": (WRONG + DISARM, "__subclasses__"),
}  # fmt: skip
# SECURITY.md documents that these pass
PASSING = {
    "changes a list": ("assert [f()] == EXPECTED", "EXPECTED[:] = [0]"),
    "changes a constant": ("assert f() == ONE", "ONE = 0"),
    "changes a flag": ("checker.count(f(), 1)", "checker.strict = False"),
    "changes a table of functions": ("assert CHECKS['same'](f(), 1)", f"CHECKS['same'] = {TRUE}"),
    "returns an equal object": ("assert f() == 1", f"f = lambda: type('E', (), {{'__eq__': {TRUE}}})()"),
    "returns an object that changes what it is compared with": (
        "assert f() == EXPECTED and EXPECTED == [0]",
        "class E(list):\n    def __eq__(self, other): return not other.__setitem__(0, 0)\nf = E",
    ),
}
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
async def test_an_attack_on_helpers_or_records_does_not_pass(shared_sandbox: Sandbox, case: str, attack: str) -> None:
    report = await judge(shared_sandbox, attack if "def f" in attack else WRONG + attack, case)
    assert report.status is not Status.PASSED
    assert (await judge(shared_sandbox, WRONG, case)).status is Status.FAILED


@pytest.mark.parametrize(("snippet", "name"), LISTED.values(), ids=LISTED)
async def test_a_snippet_that_reaches_the_harness_is_listed(shared_sandbox: Sandbox, snippet: str, name: str) -> None:
    report = await judge(shared_sandbox, snippet, "assert sum([f()]) == 1")
    assert (report.status, name in report.introspection) == (Status.PASSED, True)


@pytest.mark.parametrize(("case", "attack"), PASSING.values(), ids=PASSING)
async def test_documented_attacks_pass(shared_sandbox: Sandbox, case: str, attack: str) -> None:
    report = await judge(shared_sandbox, attack if "f = " in attack else WRONG + attack, case)
    assert (report.status, report.introspection) == (Status.PASSED, ())


@pytest.mark.parametrize(("case", "snippet"), HONEST.values(), ids=HONEST)
async def test_a_snippet_may_change(shared_sandbox: Sandbox, case: str, snippet: str) -> None:
    report = await judge(shared_sandbox, snippet, case)
    assert (report.status, report.introspection) == (Status.PASSED, ()), report
