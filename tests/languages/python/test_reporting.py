"""Phase and innermost line determine the cause of every failed case and run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.languages.base import Program
from agent.languages.python.language import PythonLanguage
from agent.sandbox.base import Frame, ReportLine, RunResult
from agent.types import CaseOutcome, Cause, Status, TestReport
from tests.languages.python.harness import run

python = PythonLanguage()
ADD = "def add(a, b):\n    return a + b"
MARKED = "import os, sys, unittest\n# <candidate>\n"

Report = Callable[..., TestReport]


def program(code: str, after: str, before: str = "") -> Program:
    return python.insert(before + MARKED + after, python.inspect(code))


@pytest.fixture
def report(tmp_path: Path) -> Report:
    def run_report(code: str, after: str, before: str = "") -> TestReport:
        generated = program(code, after, before)
        return python.report(generated, run(generated, tmp_path))

    return run_report


def summarise(test_report: TestReport) -> tuple[Status, Cause | None, list[tuple[CaseOutcome, Cause | None]]]:
    return test_report.status, test_report.cause, [(case.outcome, case.cause) for case in test_report.cases]


PASSED, FAILED, ERROR, NOT_RUN = CaseOutcome.PASSED, CaseOutcome.FAILED, CaseOutcome.ERROR, CaseOutcome.NOT_RUN
SNIPPET, PROGRAM, DEPENDENCY = Cause.SNIPPET, Cause.PROGRAM, Cause.DEPENDENCY
CALL = "def test_a():\n    assert f() == 1\n"


class TestCasesOfRealRuns:
    def test_all_cases_passed(self, report: Report) -> None:
        test_report = report(
            ADD,
            "def test_a():\n    assert add(1, 2) == 3\nasync def test_b():\n    assert add('a', 'b') == 'ab'\n"
            "class T(unittest.TestCase):\n    def test_c(self):\n        self.assertEqual(add([], []), [])\n",
        )
        assert summarise(test_report) == (Status.PASSED, None, [(PASSED, None)] * 3)
        assert test_report.executed

    def test_a_failed_assertion_of_the_program_is_evidence_about_the_snippet(self, report: Report) -> None:
        test_report = report(
            ADD,
            "def test_a():\n    assert add(1, 2) == 4\ndef test_b():\n    assert add(1, 1) == 2\n"
            "class T(unittest.TestCase):\n    def test_c(self):\n        self.assertEqual(add(1, 1), 3)\n",
        )
        assert summarise(test_report) == (
            Status.FAILED,
            SNIPPET,
            [(FAILED, SNIPPET), (PASSED, None), (FAILED, SNIPPET)],
        )
        assert test_report.cases[0].message == "AssertionError (program line 5: `assert add(1, 2) == 4`)"
        assert "2 != 3" in test_report.cases[2].message

    def test_an_assertion_inside_the_snippet_is_an_error_of_the_snippet(self, report: Report) -> None:
        test_report = report("def f():\n    assert False, 'no'", CALL)
        assert summarise(test_report) == (Status.ERROR, SNIPPET, [(ERROR, SNIPPET)])
        assert test_report.cases[0].message == "AssertionError: no (snippet line 2: `assert False, 'no'`)"

    def test_an_assertion_in_a_stand_in_is_an_expectation_of_the_program(self, report: Report) -> None:
        fake = "def fetch(sql):\n    assert 'WHERE' in sql\n"
        test_report = report("def f():\n    return fetch('SELECT 1')", fake + CALL)
        assert summarise(test_report) == (Status.FAILED, SNIPPET, [(FAILED, SNIPPET)])

    @pytest.mark.parametrize(
        "code",
        [
            "def f():\n    return 1 / 0",
            "def f():\n    sys.exit(0)",
            "import json\ndef f():\n    return json.loads('{')",
            "from collections import OrderedDict\ndef f():\n    from collections import Mapping",
            "class A:\n    pass\ndef f():\n    return A().missing",
        ],
    )
    def test_an_exception_in_the_snippet_is_an_error_of_the_snippet(self, report: Report, code: str) -> None:
        assert summarise(report(code, CALL)) == (Status.ERROR, SNIPPET, [(ERROR, SNIPPET)])

    @pytest.mark.parametrize(
        "after",
        [
            "def test_a():\n    assert add(1) == 1\n",
            "def test_a():\n    assert undefined(add(1, 2))\n",
            "class T(unittest.TestCase):\n    def setUp(self):\n        1 / 0\n    def test_a(self):\n        pass\n",
        ],
    )
    def test_an_exception_in_the_program_is_an_error_of_the_program(self, report: Report, after: str) -> None:
        assert summarise(report(ADD, after)) == (Status.ERROR, PROGRAM, [(ERROR, PROGRAM)])

    def test_program_errors_outweigh_failures_which_outweigh_snippet_errors(self, report: Report) -> None:
        after = "def test_a():\n    assert add(1, 1) == 3\ndef test_b():\n    add('', 1)\n"
        outcomes = [(FAILED, SNIPPET), (ERROR, SNIPPET)]
        assert summarise(report(ADD, after)) == (Status.FAILED, SNIPPET, outcomes)
        broken = after + "def test_c():\n    oops\n"
        assert summarise(report(ADD, broken)) == (Status.ERROR, PROGRAM, [*outcomes, (ERROR, PROGRAM)])

    def test_a_skipped_case_proves_nothing(self, report: Report) -> None:
        after = (
            "class T(unittest.TestCase):\n    def test_a(self):\n        pass\n"
            "    @unittest.skip('later')\n    def test_b(self):\n        pass\n"
        )
        test_report = report(ADD, after)
        assert summarise(test_report) == (Status.ERROR, PROGRAM, [(PASSED, None), (NOT_RUN, None)])
        assert test_report.cases[1].message == "skipped: later"
        assert test_report.message == "these cases did not run: T.test_b"


class TestMissingScaffolding:
    """The snippet fails, but because the program does not define what the snippet needs."""

    @pytest.mark.parametrize(
        ("code", "before"),
        [
            ("def f():\n    return np.array([1])", ""),
            ("def f():\n    import urllib2", ""),
            ("def f():\n    from . import mine", ""),
            ("import itertools\ndef f():\n    return itertools.izip()", ""),
            ("def f():\n    return dict(a=1).has_key('a')", ""),
            ("def f():\n    return Stand().missing", "class Stand:\n    pass\n"),
            (
                "def f():\n    import mine\n    return mine.x",
                "import sys, types\nsys.modules['mine'] = types.ModuleType('mine')\n",
            ),
            ("def f():\n    from mine import x", "import sys, types\nsys.modules['mine'] = types.ModuleType('mine')\n"),
        ],
    )
    def test_missing_scaffolding_is_an_error_of_the_program(self, report: Report, code: str, before: str) -> None:
        assert summarise(report(code, CALL, before)) == (Status.ERROR, PROGRAM, [(ERROR, PROGRAM)])


class TestLoading:
    def test_a_missing_module_is_a_dependency_wherever_it_is_imported(self, report: Report) -> None:
        test_report = report("import no_such_module_x.deep\ndef f():\n    return 1", CALL)
        assert summarise(test_report) == (Status.ERROR, DEPENDENCY, [(NOT_RUN, None)])
        assert "No module named 'no_such_module_x'" in test_report.message
        assert summarise(report(ADD, "def test_a():\n    import no_such_module_x\n"))[1] is DEPENDENCY

    @pytest.mark.parametrize("module", ["winreg", "msvcrt"])
    @pytest.mark.parametrize("code", ["import {}\ndef f():\n    return 1", "def f():\n    import {}"])
    def test_a_missing_standard_module_is_a_dependency(self, report: Report, code: str, module: str) -> None:
        test_report = report(code.format(module), CALL)
        assert summarise(test_report)[:2] == (Status.ERROR, DEPENDENCY)
        assert "standard module" in test_report.message + test_report.cases[0].message

    @pytest.mark.parametrize(
        ("library", "code", "cause"),
        [
            ("raise ImportError('no display')", "import lib\ndef f():\n    return 1", DEPENDENCY),
            ("from collections import Mapping", "import lib\ndef f():\n    return 1", DEPENDENCY),
            ("import time\ntime.clock()", "def f():\n    from lib import x", DEPENDENCY),
            ("print 'Python 2'", "def f():\n    import lib", DEPENDENCY),
            ("def use():\n    raise ImportError('no tk')", "import lib\ndef f():\n    lib.use()", DEPENDENCY),
            ("", "import lib\ndef f():\n    return lib.query()", DEPENDENCY),
            ("", "from lib import query\ndef f():\n    return 1", DEPENDENCY),
            ("def use():\n    return {}['a']", "import lib\ndef f():\n    lib.use()", SNIPPET),
            ("x = None", "import lib\ndef f():\n    lib.x.y", SNIPPET),
            ("", "import os\ndef f():\n    os.getcwdx()", SNIPPET),
            ("", "def f():\n    eval('1 +')", SNIPPET),
        ],
    )
    def test_a_library_that_fails_or_lacks_a_name_is_a_dependency(
        self, report: Report, tmp_path: Path, library: str, code: str, cause: Cause
    ) -> None:
        (tmp_path / "lib.py").write_text(library)
        test_report = report(code, CALL)
        assert test_report.cause is cause
        assert ("package lib " in test_report.message + test_report.cases[0].message) == ("query" in code)

    def test_syntax_that_only_this_python_can_parse_is_a_dependency(self) -> None:
        for line, cause in ((2, PROGRAM), (3, DEPENDENCY)):
            frames = (Frame("program.py", line, "<module>"),)
            record = ReportLine("load", "", "error", "SyntaxError", f"invalid syntax (program.py, line {line})", frames)
            assert python.report(program(ADD, CALL, "x = 1\n"), RunResult((record, ReportLine("end")))).cause is cause

    def test_an_exception_while_loading_the_snippet_is_an_error_of_the_snippet(self, report: Report) -> None:
        test_report = report("x = 1 / 0\ndef f():\n    return x", CALL)
        assert summarise(test_report) == (Status.ERROR, SNIPPET, [(NOT_RUN, None)])
        assert "ZeroDivisionError" in test_report.message
        assert not test_report.executed

    def test_exiting_while_loading_is_never_a_pass(self, report: Report) -> None:
        code = "import os\nos._exit(0)\ndef f():\n    return 1"
        test_report = report(code, CALL)
        assert summarise(test_report) == (Status.ERROR, SNIPPET, [(NOT_RUN, None)])
        assert "exit code 0 before the first case" in test_report.message
        assert summarise(report(ADD, "os._exit(0)\ndef test_a():\n    pass\n"))[:2] == (Status.ERROR, PROGRAM)


class TestRunsThatDoNotEnd:
    def test_exiting_in_a_case_is_an_error_of_the_snippet(self, report: Report) -> None:
        test_report = report("def f():\n    os._exit(0)", CALL + "def test_b():\n    pass\n")
        assert summarise(test_report) == (Status.ERROR, SNIPPET, [(ERROR, SNIPPET), (NOT_RUN, None)])
        assert "exit code 0 while test_a ran" in test_report.message

    def test_changed_assertions_are_tampering(self, report: Report) -> None:
        code = "def f():\n    unittest.TestCase.assertEqual = lambda *_: None"
        after = "class T(unittest.TestCase):\n    def test_a(self):\n        f()\n        self.assertEqual(1, 2)\n"
        test_report = report(code, after)
        assert summarise(test_report) == (Status.ERROR, SNIPPET, [(PASSED, None)])
        assert "tampered" in test_report.message

    def test_patched_built_ins_are_an_error_of_the_program_that_patches_them(self, report: Report) -> None:
        after = "import builtins\nbuiltins.sum = lambda *_: 1\ndef test_a():\n    assert f() == 1\n"
        assert summarise(report("def f():\n    return sum([2])", after))[:2] == (Status.ERROR, PROGRAM)

    START = (ReportLine("start", "test_a"),)

    def build_report(self, **changes: object) -> TestReport:
        result = dataclasses.replace(RunResult(exit_code=None, signal=9), **changes)
        return python.report(program(ADD, "def test_a():\n    add(1, 2)\ndef test_b():\n    pass\n"), result)

    @pytest.mark.parametrize(
        ("line", "cause"),
        [(3, SNIPPET), (5, PROGRAM)],
    )
    def test_the_hanging_line_determines_the_cause(self, line: int, cause: Cause) -> None:
        hang = (Frame("program.py", 5), Frame("program.py", line), Frame("/usr/lib/time.py", 1))
        test_report = self.build_report(records=self.START, timed_out=True, hang=hang)
        assert summarise(test_report) == (Status.TIMEOUT, cause, [(ERROR, cause), (NOT_RUN, None)])

    WAITS = Frame("/usr/lib/python3.12/threading.py", 1169, "join")
    WORKS = Frame("/usr/lib/python3.12/random.py", 1, "random")

    @pytest.mark.parametrize(
        ("main", "beside", "cause"),
        [
            ((Frame("program.py", 5), WAITS), ((Frame("program.py", 3), WORKS),), SNIPPET),
            ((Frame("program.py", 5), WAITS), ((Frame("program.py", 3), Frame("program.py", 6)),), PROGRAM),
            ((Frame("program.py", 5), WAITS), (), PROGRAM),
            ((Frame("program.py", 5),), ((Frame("program.py", 3),),), PROGRAM),
            ((Frame("program.py", 3), WAITS), ((Frame("program.py", 5),),), SNIPPET),
        ],
    )  # fmt: skip
    def test_a_program_that_waits_for_the_snippet_is_not_the_cause_of_a_hang(
        self, main: tuple[Frame, ...], beside: tuple[tuple[Frame, ...], ...], cause: Cause
    ) -> None:
        test_report = self.build_report(records=self.START, timed_out=True, hang=main, hang_beside=beside)
        assert summarise(test_report)[:2] == (Status.TIMEOUT, cause)

    def test_a_hang_without_a_stack_is_attributed_by_phase(self) -> None:
        assert summarise(self.build_report(records=self.START, timed_out=True))[:2] == (Status.TIMEOUT, SNIPPET)
        assert summarise(self.build_report(records=(), timed_out=True))[:2] == (Status.TIMEOUT, PROGRAM)

    @pytest.mark.parametrize("limit", ["memory", "output", "report"])
    def test_a_limit_hit_in_a_case_is_an_error_of_the_snippet(self, limit: str) -> None:
        assert summarise(self.build_report(records=self.START, limit=limit))[:2] == (Status.ERROR, SNIPPET)
        assert summarise(self.build_report(records=(), limit=limit))[:2] == (Status.ERROR, PROGRAM)


class TestDependencies:
    def record(self, message: str, error: str = "ModuleNotFoundError", line: int = 3) -> RunResult:
        return RunResult(
            (ReportLine("load", "", "error", error, message, (Frame("program.py", line),)), ReportLine("end"))
        )

    def judge(self, message: str, error: str = "ModuleNotFoundError") -> tuple[Cause | None, tuple[str, ...]]:
        generated = program("import numpy, cv2\ndef f():\n    pass", "def test_a():\n    pass\n")
        result = self.record(message, error)
        return python.report(generated, result).cause, python.missing(generated, result)

    def test_missing_modules_come_first_and_other_imports_follow(self) -> None:
        assert self.judge("No module named 'cv2.data'") == (DEPENDENCY, ("cv2", "numpy"))
        assert self.judge("No module named lxml") == (DEPENDENCY, ("lxml", "numpy", "cv2"))

    @pytest.mark.parametrize(
        ("message", "first"),
        [("'google'", ["google.protobuf", "google.auth"]), ("'google.auth'", ["google.auth"]), ("'azure'", ["azure"])],
    )
    def test_a_missing_namespace_stands_for_the_modules_that_the_program_imports(
        self, message: str, first: list[str]
    ) -> None:
        code = "try:\n    from google.protobuf import message\n    import google.auth\nexcept ImportError:\n    raise"
        names = python.missing(program(code, CALL), self.record(f"No module named {message}"))
        assert list(names) == first

    def test_an_optional_dependency_of_a_library_counts(self) -> None:
        message = "Missing optional dependency 'openpyxl'.  Use pip or conda to install openpyxl."
        assert self.judge(message, "ImportError") == (DEPENDENCY, ("openpyxl", "numpy", "cv2"))

    @pytest.mark.parametrize(
        ("message", "cause"),
        [
            ("cannot import name 'imread' from 'scipy.misc' (/x/scipy/misc.py)", DEPENDENCY),
            ("libGL.so.1: cannot open shared object file: No such file or directory", DEPENDENCY),
            ("cannot import name 'Mapping' from 'collections' (/usr/lib/collections.py)", SNIPPET),
            ("No module named 'os.nothing'; 'os' is not a package", SNIPPET),
            ("No module named 'ConfigParser'", PROGRAM),
        ],
    )
    def test_other_import_errors_name_nothing_to_install(self, message: str, cause: Cause) -> None:
        assert self.judge(message, "ImportError") == (cause, ())

    def test_other_failures_have_no_missing_modules(self) -> None:
        assert self.judge("name 'x' is not defined", "NameError")[1] == ()


class TestPassedRuns:
    PARSED_PROGRAM = program(ADD, "def test_a():\n    pass\ndef test_b():\n    pass\n")
    GOOD = (
        ReportLine("start", "test_a"),
        ReportLine("case", "test_a", "passed"),
        ReportLine("start", "test_b"),
        ReportLine("case", "test_b", "passed"),
        ReportLine("end"),
    )

    @given(data=st.data())
    def test_a_missing_duplicate_or_extra_record_prevents_a_pass(self, data: st.DataObject) -> None:
        records = list(self.GOOD)
        index = data.draw(st.integers(0, len(records) - 1))
        match data.draw(st.sampled_from(["lack", "fail", "tamper", "load"])):
            case "lack":
                del records[index]
            case "fail":
                records[index] = ReportLine(
                    "case", "test_b", data.draw(st.sampled_from(["failed", "error", "skipped", ""]))
                )
            case kind:
                records.insert(index, ReportLine(kind))
        assert python.report(self.PARSED_PROGRAM, RunResult(tuple(records))).status is not Status.PASSED

    @given(
        st.fixed_dictionaries(
            {
                "exit_code": st.sampled_from([0, 1, None]),
                "timed_out": st.booleans(),
                "limit": st.sampled_from([None, "memory"]),
            }
        )
    )
    def test_no_unclean_end_passes(self, changes: dict[str, object]) -> None:
        result = dataclasses.replace(RunResult(self.GOOD), **changes)
        assert (python.report(self.PARSED_PROGRAM, result).status is Status.PASSED) == result.clean

    def test_the_worst_parameter_of_a_case_decides(self) -> None:
        twice = (ReportLine("start", "test_a[1]"), ReportLine("case", "test_a[1]", "failed", "AssertionError"))
        test_report = python.report(self.PARSED_PROGRAM, RunResult((*twice, *self.GOOD)))
        assert summarise(test_report) == (Status.FAILED, SNIPPET, [(FAILED, SNIPPET), (PASSED, None)])


def test_messages_are_short_readable_and_equal_for_equal_runs() -> None:
    generated = TestPassedRuns.PARSED_PROGRAM
    message = f"<A object at 0x7f00{id(generated):x}> \x1b[31m\ud800" + "y" * 5_000
    error = ReportLine("case", "test_a", "error", "ValueError", message, (Frame("program.py", 3),))
    text = python.report(generated, RunResult((ReportLine("start", "test_a"), error))).cases[0].message
    assert text.startswith("ValueError: <A object at <address>> \\x1b[31m\ufffdyyy")
    assert text.endswith("(snippet line 2: `return a + b`)")
    assert len(text) < 1_600


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("def f():\n    import gc\n    return gc.get_objects()", ("gc",)),
        ("def f():\n    from sys import _getframe as g\n    return g()", ("_getframe",)),
        ("from inspect import *\ndef f():\n    return currentframe()", ("currentframe",)),
        ("def f():\n    import sys\n    return getattr(sys, 'settrace')", ("settrace",)),
        ("def f():\n    import ctypes.util\n    return __import__('operator').attrgetter('f_back.f_back')",
         ("ctypes", "f_back")),
        ("import traceback\ndef f():\n    return [*traceback.walk_stack(None)]", ("walk_stack",)),
        ("from inspect import stack\ndef f():\n    return stack()", ("stack",)),
        ("def f():\n    return object.__subclasses__()", ("__subclasses__",)),
        ("from os import register_at_fork\nimport sys\ndef f():\n    sys.addaudithook(register_at_fork)",
         ("addaudithook", "register_at_fork")),
        ("import logging, random, threading\ndef f():\n    return logging, random, threading", ()),
        ("import numpy\ndef f(items):\n    return numpy.stack(items).trace()", ()),
        ("def f(gc):\n    'Explains gc and ctypes.'\n    harness = gc.open('name')\n    return harness", ()),
    ],
)  # fmt: skip
def test_the_report_lists_names_that_reach_the_harness(code: str, names: tuple[str, ...]) -> None:
    generated = program(code, "def test_a():\n    f()\n")
    test_report = python.report(generated, RunResult())
    assert test_report.introspection == names
    assert ("introspection" in test_report.model_dump()) == bool(names)
    around = python.report(program("def f(): pass", "import gc\n" + CALL), RunResult())
    assert around.introspection == ("gc",)
