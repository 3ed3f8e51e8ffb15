"""The Python harness runs plain functions, unittest classes and pytest tests, in a complete module."""

from __future__ import annotations

import re

import pytest

from agent.sandbox.base import Frame, Sandbox
from tests.sandbox.conftest import BACKENDS, make_job, make_test_job, passes, read_outcomes

UNITTEST = """
import unittest
from unittest import mock
class TestA(unittest.TestCase):
    @classmethod
    def setUpClass(cls): cls.shared = []
    def setUp(self): self.shared.append(1)
    def test_good(self): self.assertTrue(self.shared)
    def test_wrong(self): self.assertEqual(1, 2)
    def test_broken(self): raise KeyError("x")
    def test_exits(self): raise SystemExit(0)
    def test_interrupts(self): raise KeyboardInterrupt
    def test_skipped(self): self.skipTest("no")
    def test_parts(self):
        for n in range(3):
            with self.subTest(n=n): self.assertNotEqual(n, 1)
    @unittest.expectedFailure
    def test_expected(self): self.fail()
    @unittest.expectedFailure
    def test_unexpected(self): pass
    async def test_never(self): self.fail()
    @mock.patch("os.getcwd", return_value="here")
    def test_mocked(self, getcwd):
        import os
        self.assertEqual(os.getcwd(), "here")
    def test_cleanup(self): self.addCleanup(self.fail)
class TestB(unittest.TestCase):
    @classmethod
    def setUpClass(cls): raise OSError("no database")
    def test_b(self): pass
class TestC(unittest.IsolatedAsyncioTestCase):
    async def test_c(self): self.assertEqual(1, 1)
    async def test_d(self): self.assertEqual(1, 2)
"""
EXPECTED = {
    "TestA.test_good": "passed",
    "TestA.test_wrong": "failed",
    "TestA.test_broken": "error",
    "TestA.test_exits": "error",
    "TestA.test_interrupts": "error",
    "TestA.test_skipped": "skipped",
    "TestA.test_parts": "failed",
    "TestA.test_expected": "skipped",
    "TestA.test_unexpected": "failed",
    "TestA.test_never": "error",
    "TestA.test_mocked": "passed",
    "TestA.test_cleanup": "failed",
    "TestB.test_b": "error",
    "TestC.test_c": "passed",
    "TestC.test_d": "failed",
}


async def test_unittest_cases_have_unittest_outcomes(shared_sandbox: Sandbox) -> None:
    result = await shared_sandbox.run(make_job(UNITTEST, tuple(EXPECTED)))
    assert read_outcomes(result) == EXPECTED
    assert result.clean


async def test_the_exception_determines_a_functions_outcome(shared_sandbox: Sandbox) -> None:
    program = """
import asyncio, unittest
def test_good(): assert True
def test_wrong(): assert False, "why"
def test_broken(): {}["x"]
def test_exits(): exit(0)
def test_skipped(): raise unittest.SkipTest("no")
async def test_async(): await asyncio.sleep(0)
async def test_async_wrong(): assert 0
def test_generator(): yield 1
def test_arguments(x): pass
class Odd(Exception):
    def __str__(self): raise ValueError
def test_odd(): raise Odd
"""
    result = await shared_sandbox.run(make_job(program, re.findall(r"def (test_\w+)", program)))
    expected = {"test_good": "passed", "test_wrong": "failed", "test_async": "passed", "test_async_wrong": "failed"}
    assert read_outcomes(result) == {
        **dict.fromkeys(["test_broken", "test_exits", "test_generator", "test_arguments", "test_odd"], "error"),
        **expected,
        "test_skipped": "skipped",
    }
    records = {record.name: record for record in result.records if record.kind == "case"}
    assert "ValueError" in records["test_odd"].message
    assert records["test_wrong"].message == "why"
    assert records["test_broken"].frames == (Frame("program.py", 5, "test_broken"),)


async def test_messages_and_tracebacks_are_truncated(shared_sandbox: Sandbox) -> None:
    program = "def deep(n):\n    if n: deep(n - 1)\n    raise ValueError('x' * 5000)\ndef test_a(): deep(200)"
    case = (await shared_sandbox.run(make_job(program))).records[1]
    assert (len(case.message), len(case.frames)) == (2000, 40)
    assert case.frames[-1] == Frame("program.py", 3, "deep")


async def test_a_syntax_error_names_its_line(shared_sandbox: Sandbox) -> None:
    load, end = (await shared_sandbox.run(make_job("x = 1\nif True print(x)\n"))).records
    assert (load.kind, load.error_type, load.frames) == ("load", "SyntaxError", (Frame("program.py", 2, "<module>"),))
    assert end.kind == "end"


async def test_a_missing_module_is_a_load_error(shared_sandbox: Sandbox) -> None:
    load = (await shared_sandbox.run(make_job("\nimport numpypy\ndef test_a(): pass"))).records[0]
    assert (load.kind, load.error_type, "numpypy" in load.message) == ("load", "ModuleNotFoundError", True)
    assert load.frames[0] == Frame("program.py", 2, "<module>")


MODULE = {
    "its source": "import inspect\ndef f(): return 1\n"
    "def test_a(): assert inspect.getsource(f) == 'def f(): return 1\\n'",
    "the source of its classes": "import inspect\nclass A:\n    x = 1\n"
    "def test_a(): assert inspect.getsource(A) == 'class A:\\n    x = 1\\n'",
    "readable tracebacks": "import traceback\ndef test_a():\n    try: 1 / 0\n"
    "    except ZeroDivisionError: assert 'try: 1 / 0' in traceback.format_exc()",
    "its name": "def test_a(): assert __name__ == 'test_program' and __file__ == 'program.py'",
    "its pickled classes": "import pickle\nclass A: pass\n"
    "def test_a(): assert type(pickle.loads(pickle.dumps(A()))) is A",
    "a main block that is skipped": "x = 1\nif __name__ == '__main__': x = 2\ndef test_a(): assert x == 1",
    "future imports": "from __future__ import annotations\ndef f(x: undefined): pass\n"
    "def test_a(): assert f.__annotations__ == {'x': 'undefined'}",
    "doctests": "import doctest\ndef f(x):\n    '''\n    >>> f(1)\n    2\n    '''\n    return x + 1\n"
    "def test_a(): import test_program; assert doctest.testmod(test_program).attempted == 1",
    "arguments": "import sys, argparse\n"
    "def test_a(): assert argparse.ArgumentParser().parse_args([]) and len(sys.argv) == 1",
    "the built-ins of site": "def test_a():\n    try: quit()\n    except SystemExit: pass",
    "modules that it wrote": "def test_a():\n"
    "    open('/work/own.py', 'w').write('x = 5')\n    import own\n    assert own.x == 5",
    "interrupts": "import os, signal\ndef test_a():\n    try: os.kill(os.getpid(), signal.SIGINT)\n"
    "    except KeyboardInterrupt: return\n    assert 0",
}


@pytest.mark.parametrize("program", MODULE.values(), ids=MODULE)
async def test_a_program_can_use(shared_sandbox: Sandbox, program: str) -> None:
    result = await shared_sandbox.run(make_job(program))
    assert passes(result, "test_a"), (result.records, result.stderr)


POOL = "assert multiprocessing.get_context({!r}).Pool(2).map(f, [1, 2]) == [2, 4]"
CHILDREN = {
    **{f"a pool with {method}": POOL.format(method) for method in ("fork", "spawn", "forkserver")},
    "a subprocess": "code = 'import test_program; print(test_program.f(2))'\n"
    "    assert subprocess.check_output([sys.executable, '-c', code]) == b'4\\n'",
}
CALLER = """
import multiprocessing, subprocess, sys
def f(x): return x * 2
"""


@pytest.mark.parametrize("case", CHILDREN.values(), ids=CHILDREN)
async def test_a_programs_child_processes_can_import_it(shared_sandbox: Sandbox, case: str) -> None:
    result = await shared_sandbox.run(make_job(f"{CALLER}def test_a():\n    {case}", timeout=30))
    assert passes(result, "test_a"), (result.records, result.stderr)


@pytest.mark.parametrize(("function", "exercised"), [("f", True), ("len", False)])
async def test_a_sentinel_run_also_stops_the_snippet_in_child_processes(
    shared_sandbox: Sandbox, function: str, exercised: bool
) -> None:
    code = f"from test_program import *; print({function}([2]))"
    case = f"def test_a(): subprocess.check_output([sys.executable, '-c', {code!r}])"
    job = make_job(CALLER + case, first_line="3", last_line="3", sentinel="1", timeout=30)
    assert passes(await shared_sandbox.run(job), "test_a") is not exercised


async def test_the_harness_enables_no_future_features(shared_sandbox: Sandbox) -> None:
    load = (await shared_sandbox.run(make_job("def f(x: undefined): pass"))).records[0]
    assert (load.kind, load.error_type) == ("load", "NameError")


PYTEST = """
import pytest
@pytest.fixture
def one(): return 1
@pytest.mark.parametrize("x", [1, 2, 3])
def test_each(x, one): assert x != 2
def test_raises():
    with pytest.raises(ValueError): int("x")
def test_does_not_raise():
    with pytest.raises(ValueError): int("1")
def test_files(tmp_path, capsys, monkeypatch):
    (tmp_path / "f").write_text("x")
    print("shown")
    assert capsys.readouterr().out == "shown\\n"
def test_broken(): {}["x"]
def test_skips(): pytest.skip("no")
@pytest.mark.xfail
def test_expected(): assert 0
@pytest.mark.xfail
def test_unexpected(): pass
@pytest.fixture
def bad(): raise OSError("no database")
def test_fixture(bad): pass
@pytest.fixture
def bad_end():
    yield
    raise OSError("no end")
def test_fixture_end(bad_end): pass
def test_exits(): raise SystemExit(0)
class TestA:
    def setup_method(self): self.x = 1
    def test_method(self): assert self.x == 1
"""
PYTEST_EXPECTED = {
    "test_each": ["passed", "failed", "passed"],
    "test_raises": ["passed"],
    "test_does_not_raise": ["failed"],
    "test_files": ["passed"],
    "test_broken": ["error"],
    "test_skips": ["skipped"],
    "test_expected": ["skipped"],
    "test_unexpected": ["skipped"],
    "test_fixture": ["error"],
    "test_fixture_end": ["error"],
    "test_exits": ["error"],
    "TestA.test_method": ["passed"],
}


with_pytest = pytest.mark.parametrize("backend", BACKENDS[:1], indirect=True)
"""Docker only: its image has pytest, while bubblewrap sandboxes need an environment for it."""


@with_pytest
async def test_pytest_cases_have_pytest_outcomes(shared_sandbox: Sandbox) -> None:
    result = await shared_sandbox.run(make_job(PYTEST, tuple(PYTEST_EXPECTED), pytest="1"))
    cases: dict[str, list[str]] = {}
    for record in result.records:
        if record.kind == "case":
            cases.setdefault(record.name, []).append(record.outcome)
    assert cases == PYTEST_EXPECTED
    assert [record.kind for record in result.records].count("start") == 14
    assert result.clean


PYTEST_TRICKS = {
    "raises": "import pytest\npytest.raises = lambda *a: __import__('contextlib').nullcontext()\n"
    "def test_a():\n    with pytest.raises(ValueError): pass",
    "marks": "import pytest\npytestmark = pytest.mark.skip\ndef test_a(): assert 0",
    "exits": "import pytest\ndef test_a(): pytest.exit('done', 0)",
    "skips the module": "import pytest\npytest.skip('no', allow_module_level=True)\ndef test_a(): pass",
    "runs nothing": "import pytest\npytest.Function.runtest = lambda self: None\ndef test_a(): assert 0",
    "recodes its runner": "from _pytest import python\n"
    "python.Function.runtest.__code__ = (lambda self: None).__code__\ndef test_a(): assert 0",
    "recodes its hook": "from _pytest import python\n"
    "python.pytest_pyfunc_call.__code__ = (lambda pyfuncitem: True).__code__\ndef test_a(): assert 0",
    "recodes its calls": "from _pytest.runner import CallInfo\ndef call(cls, func, when, reraise=None):\n"
    "    result = None\n    try: result = func()\n    except BaseException: pass\n"
    "    return cls(result, None, 0, 0, 0, when, _ispytest=True)\n"
    "CallInfo.from_call.__func__.__code__ = call.__code__\ndef test_a(): assert 0",
    "recodes raises": "import pytest\n"
    "pytest.raises.__code__ = (lambda *a, **k: __import__('contextlib').nullcontext()).__code__\n"
    "def test_a():\n    with pytest.raises(ValueError): pass",
    "recodes approx": "import pytest\n"
    "type(pytest.approx(1)).__eq__.__code__ = (lambda self, other: True).__code__\n"
    "def test_a(): assert 2 == pytest.approx(1)",
    "brings a plugin": "import os\nos.mkdir('e-1.dist-info')\n"
    "open('e-1.dist-info/METADATA', 'w').write('Name: e\\nVersion: 1\\n')\n"
    "open('e-1.dist-info/entry_points.txt', 'w').write('[pytest11]\\ne = evil\\n')\n"
    "open('evil.py', 'w').write('def pytest_pyfunc_call(pyfuncitem): return True')\ndef test_a(): assert 0",
    "names a plugin": "import os\n"
    "open('named.py', 'w').write('def pytest_pyfunc_call(pyfuncitem): return True')\n"
    "os.environ['PYTEST_PLUGINS'] = 'named'\ndef test_a(): assert 0",
    "names a plugin as an option": "import os\n"
    "open('option.py', 'w').write('def pytest_pyfunc_call(pyfuncitem): return True')\n"
    "os.environ['PYTEST_ADDOPTS'] = '-p option'\ndef test_a(): assert 0",
    "replaces the test in a fixture": "import pytest\n@pytest.fixture(autouse=True)\n"
    "def replaces(request): request.node.obj = lambda: None\ndef test_a(): assert 0",
}


@with_pytest
@pytest.mark.parametrize("program", PYTEST_TRICKS.values(), ids=PYTEST_TRICKS)
async def test_a_pytest_trick_does_not_pass(shared_sandbox: Sandbox, program: str) -> None:
    assert not passes(await shared_sandbox.run(make_job(program, pytest="1")), "test_a")


@pytest.mark.parametrize("backend", BACKENDS[1:], indirect=True)
async def test_modules_of_an_earlier_program_do_not_replace_pytest(sandbox: Sandbox) -> None:
    leave = "for name in ('pytest', 'pluggy', 'unittest'): open(name + '.py', 'w').close()"
    assert passes(await sandbox.run(make_test_job(leave)), "test_a")
    load = (await sandbox.run(make_job("import pytest\ndef test_a(): assert 0", pytest="1"))).records[0]
    assert (load.kind, load.error_type, "'pytest'" in load.message) == ("load", "ModuleNotFoundError", True)


@with_pytest
async def test_reverted_patches_are_not_tampering(shared_sandbox: Sandbox) -> None:
    program = "import unittest, pytest\ndef test_a(monkeypatch):\n"
    program += "    monkeypatch.setattr(pytest, 'raises', print)\n"
    program += "    monkeypatch.setattr(unittest.TestCase, 'assertEqual', print)\n"
    program += "    monkeypatch.setattr(pytest.Function, 'runtest', print)\n"
    program += "def test_b(tmpdir, recwarn, caplog, capfd, pytestconfig): pass\n"
    program += "class TestC(unittest.TestCase):\n    def test_c(self): self.assertEqual(1, 1)\n"
    cases = ("test_a", "test_b", "TestC.test_c")
    assert passes(await shared_sandbox.run(make_job(program, cases, pytest="1")), *cases)


@with_pytest
async def test_a_programs_conftest_is_not_loaded(shared_sandbox: Sandbox) -> None:
    program = "open('/tmp/conftest.py', 'w').write('import os; os._exit(0)')\nopen('conftest.py', 'w').write('x(')\n"
    assert passes(await shared_sandbox.run(make_job(program + "def test_a(tmp_path): pass", pytest="1")), "test_a")
