"""Checks whose programs and snippets try to forge a pass, and checks of honest programs that only look suspicious."""

from __future__ import annotations

from agent.sandbox.base import SandboxJob
from agent.sandbox.selfcheck.check import (
    Check,
    CheckContext,
    CheckFailed,
    describe_outcome,
    expect_no_pass,
    expect_pass,
    has_passed,
    make_checks,
)

_FORGERIES = {
    "calls os._exit while loading": "import os\nos._exit(0)\ndef test_a(): assert 0",
    "calls os._exit in a case": "import os\ndef test_a():\n    os._exit(0)\n    assert 0",
    "calls os._exit after the case": "import os, threading, time\n"
    "def leave():\n    time.sleep(0.05)\n    os._exit(0)\n"
    "def test_a():\n    threading.Thread(target=leave).start()\n    time.sleep(1)",
    "calls sys.exit while loading": "import sys\nsys.exit(0)\ndef test_a(): pass",
    "raises SystemExit in a case": "def test_a():\n    raise SystemExit(0)",
    "raises KeyboardInterrupt": "def test_a():\n    raise KeyboardInterrupt",
    "sends itself SIGINT": "import os, signal\ndef test_a():\n    os.kill(os.getpid(), signal.SIGINT)\n    assert 0",
    "prints success": "print('OK')\nprint('1 passed')\ndef test_a(): assert 0",
    "writes a result file": "open('result.json', 'w').write('{\"passed\": 1}')\ndef test_a(): assert 0",
    "writes a report": "import os\nos.write(3, b'\\0\\0\\0\\4pass')\ndef test_a(): pass",
    "fills the report": "import os\nfor _ in range(100): os.write(3, b'x' * 60000)\ndef test_a(): pass",
    "closes the report": "import os\nos.close(3)\ndef test_a(): pass",
    "has no case": "x = 1",
    "has a case that is not a function": "test_a = 3",
    "has a generator as its case": "def test_a():\n    yield\n    assert 0",
    "patches a builtin": "import builtins\nbuiltins.len = lambda x: 3\ndef test_a(): assert len([]) == 3",
    "patches a builtin in a case": "import builtins\ndef test_a(): builtins.sorted = list",
    "removes a builtin": "import builtins\ndel builtins.all\ndef test_a(): pass",
    "patches AssertionError": "import builtins\nbuiltins.AssertionError = Warning\ndef test_a(): assert len([]) == 3",
    "skips its case": "import unittest\ndef test_a(): raise unittest.SkipTest('no')",
    "skips the module": "import unittest\nraise unittest.SkipTest('no')\ndef test_a(): pass",
    "kills itself": "import os\ndef test_a(): os.kill(os.getpid(), 9)",
    "stops itself": "import os, signal\ndef test_a(): os.kill(os.getpid(), signal.SIGSTOP)",
    "executes another program while loading": "import os\nos.execv('/bin/true', ['true'])\ndef test_a(): pass",
    "executes another program in a case": "import os\ndef test_a(): os.execv('/bin/true', ['true'])",
    "exits the parent of a fork while loading": "import os\nif os.fork(): os._exit(0)\ndef test_a(): pass",
    "exits the parent of a fork in a case": "import os\ndef test_a():\n    if os.fork(): os._exit(0)",
    "calls os._exit at exit": "import atexit, os\natexit.register(os._exit, 0)\ndef test_a(): assert 0",
    "replaces streams": "import sys\nsys.stdout = sys.stderr = sys.__stdout__ = None\ndef test_a(): assert 0",
    "replaces os._exit and os.write": "import os\nos._exit = os.write = lambda *a: None\ndef test_a(): assert 0",
    "runs as the main program": "if __name__ == '__main__':\n    def test_a(): pass",
    "segfaults": "def test_a():\n    import faulthandler\n    faulthandler._sigsegv()",
    "writes to every descriptor of PID 1": "import os\n"
    "def test_a():\n    for n in range(64):\n        try:\n"
    "            with open(f'/proc/1/fd/{n}', 'wb', buffering=0) as f: f.write(b'x\\0\\0\\0\\0')\n"
    "        except OSError: pass\n    assert 0",
    "writes to every descriptor": "import os\n"
    "for n in range(64):\n    try: os.write(n, b'r\\0\\0\\0\\4pass')\n    except OSError: pass\ndef test_a(): assert 0",
    "kills PID 1": "import os\ndef test_a():\n    for s in (15, 9, 19):\n"
    "        try: os.kill(1, s)\n        except OSError: pass\n    assert 0",
    "kills its parent": "import os\n"
    "def test_a():\n    try: os.kill(os.getppid(), 9)\n    except OSError: pass\n    assert 0",
    "kills all of its processes": "import os\ndef test_a():\n    os.kill(-1, 9)\n    assert 0",
    "forges a stack dump": "import os\n"
    "stack = b'  File \"x\", line ' + b'9' * 5000 + b' in f\\n' + b'  File \"' * 2000\n"
    "for n in range(3, 9):\n    try: os.write(n, stack)\n"
    "    except OSError: pass\ndef test_a(): assert 0",
    "reads the nonce from its frames": "import sys, os\n"
    "def test_a():\n    frame = sys._getframe()\n    while frame:\n        for v in list(frame.f_locals.values()):\n"
    "            if isinstance(v, str) and 16 <= len(v) <= 64: os.write(3, v.encode())\n"
    "        frame = frame.f_back\n    assert 0",
    "closes its coroutine": "import asyncio\nasyncio.run = lambda main: main.close()\nasync def test_a(): assert 0",
    "redefines coroutine types": "import types\n"
    "types.CoroutineType = types.GeneratorType = types.AsyncGeneratorType = int\n"
    "async def test_a(): assert 0",
    "reuses the signature of a captured record": "import os\n"
    "def pack(*fields): return b''.join(len(field).to_bytes(4, 'big') + field for field in fields)\n"
    "report, (taken, given) = os.dup(3), os.pipe()\nos.dup2(given, 3)\n"
    "def test_a():\n    start = os.read(taken, 999)\n    os.write(report, start)\n"
    "    tag = start[4 : -len(pack(b'start', b'test_a', b'', b'', b''))]\n"
    "    for fields in (b'case', b'test_a', b'passed'), (b'end', b'', b''):\n"
    "        os.write(report, pack(tag + pack(*fields, b'', b'')))\n    os._exit(0)",
    "replaces its built-ins": "import builtins\nglobals()['__builtins__'] = {**vars(builtins), 'len': lambda x: 3}\n"
    "def test_a(): assert len([]) == 3",
    "reaches the harness through its loader": "def passes(name, function, emit, *rest): emit('case', name, 'passed')\n"
    "__loader__.get_source.__globals__['run_function'] = passes\ndef test_a(): assert 0",
    "freezes time": "import time\ntime.time = time.monotonic = time.perf_counter = lambda: 0.0\n"
    "def test_a(): assert time.time() > 1",
    "calls os._exit in a signal handler": "import os, signal\nsignal.signal(signal.SIGUSR1, lambda *a: os._exit(0))\n"
    "def test_a():\n    os.kill(os.getpid(), signal.SIGUSR1)\n    assert 0",
}

# These programs must pass. Otherwise, a sandbox that rejects every program would pass all checks.
_HONEST = {
    "adds builtins": "import builtins\nbuiltins.unicode = str\ndef test_a(): assert unicode(1) == '1'",
    "replaces input": "import builtins\nbuiltins.input = lambda *a: '5'\ndef test_a(): assert input() == '5'",
    "patches and restores": "from unittest import mock\nimport io\n"
    "def test_a():\n    with mock.patch('builtins.open', lambda p: io.StringIO('x')): assert open('f').read() == 'x'",
    "patches a function with a decorator": "from unittest import mock\n"
    "@mock.patch('os.getcwd', lambda: 'here')\ndef test_a():\n    import os\n    assert os.getcwd() == 'here'",
    "patches unittest and restores it": "import unittest\nfrom unittest import mock\n"
    "@mock.patch.object(unittest.TestCase, 'assertEqual', lambda *a: None)\ndef test_a():\n"
    "    unittest.TestCase().assertEqual(1, 2)\n"
    "    with mock.patch('asyncio.run'), mock.patch.dict('sys.modules', unittest=None): pass",
    "has test classes of various kinds": "import unittest\nfrom unittest import mock\n"
    "def timed(owner):\n    owner.setUpClass = classmethod(lambda cls: None)\n    return owner\n"
    "class Base(unittest.TestCase):\n    count = 0\n"
    "    def assertEqual(self, a, b):\n        Base.count += 1\n        super().assertEqual(a, b)\n"
    "    def run(self, result=None): return super().run(result)\n"
    "@timed\nclass TestB(Base):\n    def test_b(self): self.assertEqual(1, 1)\n"
    "def test_a():\n    result = unittest.TestResult()\n    unittest.TestSuite([TestB('test_b')]).run(result)\n"
    "    assert result.wasSuccessful() and Base.count == 1\n    assert mock.mock_open(read_data='x')().read() == 'x'",
    "freezes and restores the clock": "import time, types, sys\n"
    "def test_a():\n    real = time.time\n"
    "    found = [(m, k) for m in list(sys.modules.values()) if isinstance(m, types.ModuleType)\n"
    "        for k, v in list(vars(m).items()) if v is real]\n"
    "    for m, k in found: setattr(m, k, lambda: 0.0)\n    assert time.time() == 0.0\n"
    "    for m, k in found: setattr(m, k, real)",
    "awaits several coroutines": "import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x\n"
    "async def test_a(): assert await asyncio.gather(f(1), f(2)) == [1, 2]",
    "defines a fallback": "try:\n    from json import loads as f\nexcept ImportError:\n    def f(x): return 1\n"
    "def test_a(): assert f('2') == 2",
    "has a conditional definition": "if False:\n    def f(): return 1\nelse:\n    def f(): return 2\n"
    "def test_a(): assert f() == 2",
    "defines a function twice": "def f(): return 1\ndef f(): return 2\ndef test_a(): assert f() == 2",
    "rebinds a name": "def f(): return 1\nf = [f]\ndef test_a(): assert f[0]() == 1",
    "has descriptors": "class A:\n    @property\n    def p(self): return 1\n    @p.setter\n    def p(self, v): pass\n"
    "    @staticmethod\n    def s(): return 2\n    @classmethod\n    def c(cls): return 3\n    def __m(self): pass\n"
    "    def __init_subclass__(cls): pass\n    def __class_getitem__(cls, x): return x\n"
    "def test_a(): assert (A().p, A.s(), A.c()) == (1, 2, 3)",
    "has a data class": "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass A:\n    x: int\n"
    "    def y(self): return self.x\ndef test_a(): assert A(1).y() == 1 and A(1) == A(1)",
    "uses functools decorators": "import functools\n@functools.lru_cache(None)\ndef f(x): return x\n"
    "@functools.singledispatch\ndef g(x): return 1\n@g.register(str)\ndef _(x): return 2\n"
    "def test_a(): assert f(1) == 1 and g('') == 2",
    "forks and waits": "import os\ndef test_a():\n    pid = os.fork()\n    if pid: assert os.waitpid(pid, 0)[0] == pid",
    "leaves a thread running": "import threading, time\n"
    "def test_a(): threading.Thread(target=time.sleep, args=(60,)).start()",
    "closes its output": "import sys\ndef test_a(): sys.stdout.close()",
    "has unusual hooks": "import os, sys, atexit\nos.register_at_fork(before=sys.exit)\nsys.excepthook = None\n"
    "atexit.register(sys.exit, 3)\ndef test_a(): pass",
}

_OUTPUT = """
import sys
sys.stdout.buffer.write(b"nul \\0, invalid \\xff\\xfe, escapes \\x1b[31m\\x1b]0;title\\x07, \\xe2\\x82\\xac\\n")
sys.stdout.flush()
"""


async def _check_odd_output(context: CheckContext) -> None:
    """Check that invalid UTF-8 does not break the report, and that valid text is returned unchanged."""
    async with context.open_sandbox() as sandbox:
        result = await sandbox.run(context.make_job(f"def test_a(): pass\n{_OUTPUT}"))
        if not has_passed(result) or "nul \0" not in result.stdout or "€" not in result.stdout:
            raise CheckFailed(f"unexpected output {result.stdout!r}: {describe_outcome(result)}")


async def _check_capped_output(context: CheckContext) -> None:
    """Check that output beyond the limit is discarded and that the rest is marked as truncated."""
    async with context.open_sandbox() as sandbox:
        size = 3 * context.limits.output
        result = await sandbox.run(context.make_job(f"def test_a(): print('x' * {size})"))
        if not (result.truncated and 0 < len(result.stdout) <= context.limits.output):
            received = f"{len(result.stdout)} of {size} characters"
            raise CheckFailed(f"expected truncated output, got {received}: {describe_outcome(result)}")


# Snippets that tamper with the test cases around them. The run must not pass, even if the test cases are correct.
_BEFORE = """
import asyncio, contextlib, functools, unittest
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
class Bare(unittest.TestCase): pass
"""
_AFTER = """
def test_a():
    assert helper(WRONG)
def test_b():
    decorated(WRONG)
class TestC(Base):
    def test_c(self): self.assertEqual(WRONG, 1)
    def test_d(self): self.check(WRONG)
class TestE(Bare):
    def test_e(self): self.assertEqual(WRONG, 1)
class TestF(unittest.IsolatedAsyncioTestCase):
    async def test_f(self): self.assertEqual(WRONG, 1)
async def test_g(): assert sum([WRONG]) == 1
"""
_CASES = ("test_a", "test_b", "TestC.test_c", "TestC.test_d", "TestE.test_e", "TestF.test_f", "test_g")
_TRICKS = {
    "replaces a test": "def test_a(): pass",
    "deletes a test": "del test_a",
    "replaces a helper": "def helper(x): return True",
    "replaces a helper with a callable": "helper = bool",
    "wraps a helper": "import functools\nhelper = functools.wraps(helper)(lambda x: True)",
    "replaces the code of a helper": "helper.__code__ = (lambda x: True).__code__",
    "replaces the code of a decorated helper": "decorated.__wrapped__.__code__ = (lambda x: True).__code__",
    "replaces a decorated helper": "decorated = print",
    "patches unittest": "unittest.TestCase.assertEqual = lambda *a: None",
    "patches unittest's run": "unittest.TestCase.run = lambda self, result: result.startTest(self)",
    "patches unittest's result": "unittest.TestResult.addFailure = unittest.TestResult.addSuccess",
    "patches unittest's suite": "unittest.suite.TestSuite.run = lambda self, result: result",
    "intercepts attributes": "unittest.TestCase.__getattribute__ = lambda self, name: print",
    "patches a base": "Base.assertEqual = lambda *a: None",
    "replaces a method": "Base.check = lambda *a: None",
    "replaces the code of a method": "Base.check.__code__ = (lambda *a: None).__code__",
    "replaces a class": "class Base(unittest.TestCase):\n    def check(self, x): pass",
    "turns all failures into skips": "unittest.TestCase.failureException = unittest.SkipTest",
    "freezes the clock": "import time\ntime.time = time.monotonic = lambda: 0.0\nhelper = None",
    "replaces the code of assertEqual": "unittest.TestCase.assertEqual.__code__ = "
    "(lambda self, a, b, msg=None: None).__code__",
    "replaces the code of unittest's run": "def run(self, result=None):\n"
    "    result.startTest(self)\n    result.addSuccess(self)\nunittest.TestCase.run.__code__ = run.__code__",
    "replaces the code of unittest's comparison": "unittest.TestCase._getAssertEqualityFunc.__code__ = "
    "(lambda self, first, second: lambda *a, **k: None).__code__",
    "replaces the code of unittest's executor": "def part(self, case, *options):\n"
    "    try: yield\n    except Exception: pass\n"
    "unittest.case._Outcome.testPartExecutor.__wrapped__.__code__ = part.__code__",
    "changes a default argument in unittest": "unittest.TestCase.assertEqual.__defaults__ = ('wrong',)",
    "adds a default argument to unittest": "unittest.TestCase.assertEqual.__kwdefaults__ = {'msg': None}",
    "overrides methods that async cases inherit": "unittest.IsolatedAsyncioTestCase.assertEqual = lambda *a: None",
    "patches async cases": "unittest.IsolatedAsyncioTestCase._callTestMethod = lambda self, method: None",
    "patches a base class without methods": "Bare.assertEqual = lambda *a: None",
    "changes the metaclass of unittest": "class Meta(type): pass\nunittest.TestCase.__class__ = Meta",
    "shadows a built-in in unittest": "unittest.case.isinstance = lambda *a: True",
    "hides exceptions": "import sys\nsys.exc_info = lambda: None",
    "swallows exceptions": "contextlib._GeneratorContextManager.__exit__ = lambda *a: True",
    "replaces unittest with a fake": "import sys, types\n"
    "class Suite:\n    def __init__(self, tests): pass\n    def run(self, result): result.testsRun = 1\n"
    "fake = types.ModuleType('unittest')\nvars(fake).update(vars(unittest), TestSuite=Suite)\n"
    "sys.modules['unittest'] = fake",
    "patches asyncio": "asyncio.run = lambda main, **options: main.close()",
    "replaces the code of asyncio.run": "asyncio.run.__code__ = (lambda main, **options: main.close()).__code__",
    "redefines coroutine types": "import types\n"
    "types.CoroutineType = types.GeneratorType = types.AsyncGeneratorType = int",
    "replaces its built-ins": "import builtins\n"
    "globals()['__builtins__'] = {**vars(builtins), 'sum': lambda values: 1}",
    "shadows modules": "import sys\nfor name in ('unittest', 'unittest.case', 'types'): sys.modules[name] = None\n"
    "unittest.TestCase.assertEqual = lambda *a: None",
    "patches from a thread": "import threading, time\ndef later():\n"
    "    while 'TestC' not in globals(): time.sleep(0)\n    TestC.test_c = TestC.test_d = lambda self: None\n"
    "threading.Thread(target=later, daemon=True).start()",
}


def _make_trick_job(context: CheckContext, snippet: str, *, wrong: bool) -> SandboxJob:
    """Return a job whose program combines a snippet with helpers and test cases. With `wrong`, the cases must fail."""
    after = _AFTER.replace("WRONG", "2" if wrong else "1")
    before = _BEFORE + after if "test_" in snippet else _BEFORE
    first = before.count("\n") + 1
    program = f"{before}{snippet}\n{'' if before != _BEFORE else after}"
    return context.make_job(program, _CASES, first_line=str(first), last_line=str(first + snippet.count("\n")))


def _make_trick_check(name: str, snippet: str) -> Check:
    async def procedure(context: CheckContext) -> None:
        async with context.open_sandbox() as sandbox:
            for wrong in (True, False):
                result = await sandbox.run(_make_trick_job(context, snippet, wrong=wrong))
                if has_passed(result, _CASES):
                    cases = "failing" if wrong else "correct"
                    raise CheckFailed(f"expected a run with {cases} cases not to pass, got: {describe_outcome(result)}")
            await context.require_working(sandbox)

    return Check(name, "tampering snippets", procedure)


async def _check_harmless(context: CheckContext) -> None:
    async with context.open_sandbox() as sandbox:
        result = await sandbox.run(_make_trick_job(context, "def f(): pass", wrong=False))
        if not has_passed(result, _CASES):
            raise CheckFailed(f"expected the program to pass, got: {describe_outcome(result)}")


CHECKS = [
    *make_checks("honest programs", _HONEST, expect_pass, is_program=True),
    Check("writes invalid text", "honest programs", _check_odd_output),
    Check("writes more than the output limit", "honest programs", _check_capped_output),
    *make_checks("forgeries", _FORGERIES, expect_no_pass, timeout=1.5, is_program=True),
    *(_make_trick_check(name, snippet) for name, snippet in _TRICKS.items()),
    Check("changes nothing", "tampering snippets", _check_harmless),
]
