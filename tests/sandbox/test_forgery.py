"""No trick makes a program pass that has not earned it, and honest programs are not taken for tricks."""

from __future__ import annotations

import pytest

from agent.sandbox.base import Job, Sandbox
from tests.sandbox.conftest import job, outcomes, passes

FORGERIES = {
    "leaves while loading": "import os\nos._exit(0)\ndef test_a(): assert 0",
    "leaves in a case": "import os\ndef test_a():\n    os._exit(0)\n    assert 0",
    "leaves after the case": "import os, threading, time\n"
    "def leave():\n    time.sleep(0.05)\n    os._exit(0)\n"
    "def test_a():\n    threading.Thread(target=leave).start()\n    time.sleep(1)",
    "exits while loading": "import sys\nsys.exit(0)\ndef test_a(): pass",
    "exits in a case": "def test_a():\n    raise SystemExit(0)",
    "interrupts": "def test_a():\n    raise KeyboardInterrupt",
    "interrupts itself": "import os, signal\ndef test_a():\n    os.kill(os.getpid(), signal.SIGINT)\n    assert 0",
    "prints success": "print('OK')\nprint('1 passed')\ndef test_a(): assert 0",
    "writes a result file": "open('result.json', 'w').write('{\"passed\": 1}')\ndef test_a(): assert 0",
    "writes a report": "import os\nos.write(3, b'\\0\\0\\0\\4pass')\ndef test_a(): pass",
    "fills the report": "import os\nfor _ in range(100): os.write(3, b'x' * 60000)\ndef test_a(): pass",
    "closes the report": "import os\nos.close(3)\ndef test_a(): pass",
    "has no case": "x = 1",
    "has no such function": "test_a = 3",
    "has a generator for a case": "def test_a():\n    yield\n    assert 0",
    "patches a builtin": "import builtins\nbuiltins.len = lambda x: 3\ndef test_a(): assert len([]) == 3",
    "patches a builtin in a case": "import builtins\ndef test_a(): builtins.sorted = list",
    "removes a builtin": "import builtins\ndel builtins.all\ndef test_a(): pass",
    "patches AssertionError": "import builtins\nbuiltins.AssertionError = Warning\ndef test_a(): assert len([]) == 3",
    "skips": "import unittest\ndef test_a(): raise unittest.SkipTest('no')",
    "skips the module": "import unittest\nraise unittest.SkipTest('no')\ndef test_a(): pass",
    "kills itself": "import os\ndef test_a(): os.kill(os.getpid(), 9)",
    "stops itself": "import os, signal\ndef test_a(): os.kill(os.getpid(), signal.SIGSTOP)",
    "becomes another program": "import os\nos.execv('/bin/true', ['true'])\ndef test_a(): pass",
    "becomes another program in a case": "import os\ndef test_a(): os.execv('/bin/true', ['true'])",
    "forks away": "import os\nif os.fork(): os._exit(0)\ndef test_a(): pass",
    "forks away in a case": "import os\ndef test_a():\n    if os.fork(): os._exit(0)",
    "leaves at exit": "import atexit, os\natexit.register(os._exit, 0)\ndef test_a(): assert 0",
    "replaces streams": "import sys\nsys.stdout = sys.stderr = sys.__stdout__ = None\ndef test_a(): assert 0",
    "replaces the way out": "import os\nos._exit = os.write = lambda *a: None\ndef test_a(): assert 0",
    "runs as the main program": "if __name__ == '__main__':\n    def test_a(): pass",
    "segfaults": "def test_a():\n    import faulthandler\n    faulthandler._sigsegv()",
}


@pytest.mark.parametrize("program", FORGERIES.values(), ids=FORGERIES)
async def test_a_forgery_does_not_pass(reused: Sandbox, program: str) -> None:
    assert not passes(await reused.run(job(program, timeout=1.5)), "test_a")


BEFORE = """
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
AFTER = """
def test_a():
    assert helper(WRONG)
def test_b():
    decorated(WRONG)
class TestC(Base):
    def test_c(self): self.assertEqual(WRONG, 1)
    def test_d(self): self.check(WRONG)
"""
CASES = ("test_a", "test_b", "TestC.test_c", "TestC.test_d")
SNIPPET_TRICKS = {
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
    "patches by a thread": "import threading, time\ndef later():\n"
    "    while 'TestC' not in globals(): time.sleep(0)\n    TestC.test_c = TestC.test_d = lambda self: None\n"
    "threading.Thread(target=later, daemon=True).start()",
}


def around(snippet: str, *, wrong: bool = True, cases: tuple[str, ...] = CASES) -> Job:
    """Return a job with a snippet between helpers and the cases, which fail when `wrong`."""
    after = AFTER.replace("WRONG", "2" if wrong else "1")
    before = BEFORE + after if "test_" in snippet else BEFORE
    first = before.count("\n") + 1
    program = f"{before}{snippet}\n{'' if before != BEFORE else after}"
    return job(program, cases, first_line=str(first), last_line=str(first + snippet.count("\n")))


@pytest.mark.parametrize("wrong", [True, False], ids=["wrong", "right"])
@pytest.mark.parametrize("snippet", SNIPPET_TRICKS.values(), ids=SNIPPET_TRICKS)
async def test_a_snippet_that_changes_its_judgement_does_not_pass(reused: Sandbox, snippet: str, wrong: bool) -> None:
    assert not passes(await reused.run(around(snippet, wrong=wrong)), *CASES)


async def test_a_snippet_that_changes_nothing_passes(reused: Sandbox) -> None:
    assert passes(await reused.run(around("def f(): pass", wrong=False)), *CASES)


async def test_what_was_changed_is_named(reused: Sandbox) -> None:
    result = await reused.run(around("helper = bool\nlen = 3\nimport builtins\nbuiltins.len = 4", cases=("test_a",)))
    told = [record.message for record in result.records if record.kind == "tamper"]
    assert told == ["the program changed builtins.len", "the program replaced its function helper"]


HONEST = {
    "adds builtins": "import builtins\nbuiltins.unicode = str\ndef test_a(): assert unicode(1) == '1'",
    "answers input": "import builtins\nbuiltins.input = lambda *a: '5'\ndef test_a(): assert input() == '5'",
    "patches and restores": "from unittest import mock\nimport io\n"
    "def test_a():\n    with mock.patch('builtins.open', lambda p: io.StringIO('x')): assert open('f').read() == 'x'",
    "is patched by a decorator": "from unittest import mock\n"
    "@mock.patch('os.getcwd', lambda: 'here')\ndef test_a():\n    import os\n    assert os.getcwd() == 'here'",
    "defines a fallback": "try:\n    from json import loads as f\nexcept ImportError:\n    def f(x): return 1\n"
    "def test_a(): assert f('2') == 2",
    "chooses a definition": "if False:\n    def f(): return 1\nelse:\n    def f(): return 2\n"
    "def test_a(): assert f() == 2",
    "defines twice": "def f(): return 1\ndef f(): return 2\ndef test_a(): assert f() == 2",
    "rebinds": "def f(): return 1\nf = [f]\ndef test_a(): assert f[0]() == 1",
    "has descriptors": "class A:\n    @property\n    def p(self): return 1\n    @p.setter\n    def p(self, v): pass\n"
    "    @staticmethod\n    def s(): return 2\n    @classmethod\n    def c(cls): return 3\n    def __m(self): pass\n"
    "    def __init_subclass__(cls): pass\n    def __class_getitem__(cls, x): return x\n"
    "def test_a(): assert (A().p, A.s(), A.c()) == (1, 2, 3)",
    "has a data class": "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass A:\n    x: int\n"
    "    def y(self): return self.x\ndef test_a(): assert A(1).y() == 1 and A(1) == A(1)",
    "caches": "import functools\n@functools.lru_cache(None)\ndef f(x): return x\n"
    "@functools.singledispatch\ndef g(x): return 1\n@g.register(str)\ndef _(x): return 2\n"
    "def test_a(): assert f(1) == 1 and g('') == 2",
    "forks and comes back": "import os\ndef test_a():\n    pid = os.fork()\n"
    "    if pid: assert os.waitpid(pid, 0)[0] == pid",
    "leaves threads": "import threading, time\ndef test_a(): threading.Thread(target=time.sleep, args=(60,)).start()",
    "closes its output": "import sys\ndef test_a(): sys.stdout.close()",
    "has odd hooks": "import os, sys, atexit\nos.register_at_fork(before=sys.exit)\nsys.excepthook = None\n"
    "atexit.register(sys.exit, 3)\ndef test_a(): pass",
}


@pytest.mark.parametrize("program", HONEST.values(), ids=HONEST)
async def test_an_honest_program_passes(reused: Sandbox, program: str) -> None:
    assert passes(await reused.run(job(program)), "test_a")


async def test_files_of_an_earlier_run_do_not_stand_in_for_modules(sandbox: Sandbox) -> None:
    plant = "for name in ('unittest', 'asyncio', 'sitecustomize', 'usercustomize', 'conftest', 'types'):\n"
    plant += "    open(name + '.py', 'w').write('import os; os._exit(0)')\ndef test_a(): pass"
    assert passes(await sandbox.run(job(plant)), "test_a")
    program = "import unittest\nclass TestX(unittest.TestCase):\n    def test_x(self): self.assertEqual(1, 2)"
    result = await sandbox.run(job(program, ["TestX.test_x"]))
    assert (outcomes(result), result.clean) == ({"TestX.test_x": "failed"}, True)
