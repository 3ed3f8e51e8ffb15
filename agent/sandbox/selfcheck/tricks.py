"""Snippets that change the tests around them: neither a wrong nor a right one passes that way."""

from __future__ import annotations

from agent.sandbox.base import Job
from agent.sandbox.selfcheck.check import Broken, Check, Room, earned, told

_BEFORE = """
import functools, unittest
def helper(x):
    assert x == 1
    return True
def traced(f):
    @functools.wraps(f)
    def run(*a): return f(*a)
    return run
@traced
def decorated(x): assert x == 1
class Base(unittest.TestCase):
    def check(self, x): self.assertEqual(x, 1)
"""
_AFTER = """
def test_a():
    assert helper(WRONG)
def test_b():
    decorated(WRONG)
class TestC(Base):
    def test_c(self): self.assertEqual(WRONG, 1)
    def test_d(self): self.check(WRONG)
"""
_CASES = ("test_a", "test_b", "TestC.test_c", "TestC.test_d")
_TRICKS = {
    "replaces a test": "def test_a(): pass",
    "deletes a test": "del test_a",
    "replaces a helper": "def helper(x): return True",
    "replaces a helper by a callable": "helper = bool",
    "wraps a helper": "import functools\nhelper = functools.wraps(helper)(lambda x: True)",
    "recodes a helper": "helper.__code__ = (lambda x: True).__code__",
    "recodes what is decorated": "decorated.__wrapped__.__code__ = (lambda x: True).__code__",
    "replaces what is decorated": "decorated = print",
    "patches unittest": "unittest.TestCase.assertEqual = lambda *a: None",
    "patches unittest's run": "unittest.TestCase.run = lambda self, result: result.startTest(self)",
    "patches unittest's result": "unittest.TestResult.addFailure = unittest.TestResult.addSuccess",
    "patches unittest's suite": "unittest.suite.TestSuite.run = lambda self, result: result",
    "intercepts attributes": "unittest.TestCase.__getattribute__ = lambda self, name: print",
    "patches a base": "Base.assertEqual = lambda *a: None",
    "replaces a method": "Base.check = lambda *a: None",
    "recodes a method": "Base.check.__code__ = (lambda *a: None).__code__",
    "replaces a class": "class Base(unittest.TestCase):\n    def check(self, x): pass",
    "makes all failures skips": "unittest.TestCase.failureException = unittest.SkipTest",
    "stops the clock": "import time\ntime.time = time.monotonic = lambda: 0.0\nhelper = None",
    "shadows modules": "import sys\nfor name in ('unittest', 'unittest.case', 'types'): sys.modules[name] = None\n"
    "unittest.TestCase.assertEqual = lambda *a: None",
    "patches by a thread": "import threading, time\ndef later():\n"
    "    while 'TestC' not in globals(): time.sleep(0)\n    TestC.test_c = TestC.test_d = lambda self: None\n"
    "threading.Thread(target=later, daemon=True).start()",
}


def _around(room: Room, snippet: str, *, wrong: bool) -> Job:
    """Return a job with a snippet between helpers and the cases, which fail when `wrong`."""
    after = _AFTER.replace("WRONG", "2" if wrong else "1")
    before = _BEFORE + after if "test_" in snippet else _BEFORE
    first = before.count("\n") + 1
    program = f"{before}{snippet}\n{'' if before != _BEFORE else after}"
    return room.job(program, _CASES, first_line=str(first), last_line=str(first + snippet.count("\n")))


def _trick(name: str, snippet: str) -> Check:
    async def procedure(room: Room) -> None:
        async with room.sandbox() as sandbox:
            for wrong in (True, False):
                result = await sandbox.run(_around(room, snippet, wrong=wrong))
                if earned(result, _CASES):
                    raise Broken(f"it passed, where the cases are {'wrong' if wrong else 'right'}: {told(result)}")
            await room.still_works(sandbox)

    return Check(name, "snippets that change their judgement", procedure)


async def _harmless(room: Room) -> None:
    async with room.sandbox() as sandbox:
        result = await sandbox.run(_around(room, "def f(): pass", wrong=False))
        if not earned(result, _CASES):
            raise Broken(f"it should have passed: {told(result)}")


CHECKS = [
    *(_trick(name, snippet) for name, snippet in _TRICKS.items()),
    Check("changes nothing", "snippets that change their judgement", _harmless),
]
