"""A program passes only if its cases ran the snippet, whatever else it defines."""

from __future__ import annotations

import ast
from textwrap import dedent
from types import CodeType

import pytest
from hypothesis import assume, example, given

from agent import Annotator, ScriptedLLM, ScriptedSandbox
from agent.pipeline.nodes.execute import _WEAKNESS, Execute, mark_unexercised
from agent.sandbox.base import SandboxBackend
from agent.sandbox.inside.python_sentinel import insert_sentinel
from agent.types import CaseOutcome, CaseResult, Cause, Status, TestReport
from tests.languages.python.snippets import snippets
from tests.pipeline.nodes.running import execute_once, open_tools
from tests.scripts import PAIR, PROGRAM, fail_all, pass_all, program, screen

OTHER = PROGRAM.replace("test_small", "test_other")
MARKER = "# <candidate>\n"
FUNCTION = "def double(x):\n    return x + x + 1\n"
RIGHT = "def double(x):\n    return 2 * x\n"
CLASS = "class Counter:\n    def count(self, text):\n        return 0\n"
METHOD = "def count(self, text):\n    return 0\n"
CASE = "\ndef test_a():\n    assert double(4) == 8\n"

CHEATS = {
    "a local function": (
        FUNCTION,
        "def test_a():\n    def double(x):\n        return 2 * x\n    assert double(4) == 8\n",
    ),
    "a function after it": (FUNCTION, "def double(x):\n    return 2 * x\n" + CASE),
    "a local import": (
        "def sqrt(x):\n    return x\n",
        "def test_a():\n    from math import sqrt\n    assert sqrt(9) == 3\n",
    ),
    "a patch": (
        FUNCTION,
        """
        from unittest.mock import patch
        def test_a():
            with patch(__name__ + ".double", return_value=8):
                assert double(4) == 8
        """,
    ),
    "a mock on an object": (
        CLASS,
        """
        from unittest.mock import MagicMock
        def test_a():
            counter = Counter()
            counter.count = MagicMock(return_value=2)
            assert counter.count("ab") == 2
        """,
    ),
    "a derived class": (
        CLASS,
        """
        class Better(Counter):
            def count(self, text):
                return len(text)
        def test_a():
            assert Better().count("ab") == 2
        """,
    ),
    "other code": (FUNCTION, "def given(x):\n    return 2 * x\ndouble.__code__ = given.__code__\n" + CASE),
    "a copy that claims to wrap it": (
        FUNCTION,
        """
        import functools
        @functools.wraps(double)
        def given(x):
            return 2 * x
        double = given
        def test_a():
            assert double(4) == 8
        """,
    ),
    "the module's namespace": (FUNCTION, "globals()['double'] = lambda x: 2 * x\n" + CASE),
    "a built-in": (
        "def total(x):\n    return 0\n",
        "import builtins\nbuiltins.total = sum\ndel total\ndef test_a():\n    assert total([1, 2]) == 3\n",
    ),
    "an except that skips the call": (
        FUNCTION,
        """
        def test_a():
            try:
                result = double("4", 4)
            except TypeError:
                result = 8
            assert result == 8
        """,
    ),
    "no call": (FUNCTION, "def test_a():\n    assert callable(double)\n"),
    "a parameter": (FUNCTION, "def test_a(double=lambda x: 2 * x):\n    assert double(4) == 8\n"),
    "an unused generator": ("def items(x):\n    yield 1\n", "def test_a():\n    assert items(3) is not None\n"),
    "a metaclass in unittest": (
        CLASS,
        """
        import unittest
        class TestCounter(unittest.TestCase):
            def setUp(self):
                self.counter = type("Counter", (Counter,), {"count": lambda self, text: len(text)})()
            def test_a(self):
                self.assertEqual(self.counter.count("ab"), 2)
        """,
    ),
    "another object under the class's name": (
        CLASS,
        """
        class Fake:
            def count(self, text):
                return len(text)
        Counter = Fake
        def test_a():
            assert Counter().count("ab") == 2
        """,
    ),
}
METHOD_CHEATS = {
    "a method after it": "    def count(self, text):\n        return len(text)\n",
    "a patch of the class": "\nBoard.count = lambda self, text: len(text)\n",
}
PARTS = {
    # parts of the snippet run here, so only the guard notices the replacement
    "a helper": (
        "def helper(x):\n    return x + 1\n\ndef double(x):\n    return 2 * helper(x)\n",
        "helper = lambda x: x\n" + CASE,
    ),
    "a method": (
        "class Counter:\n    def __init__(self):\n        self.n = 0\n    def count(self, text):\n        return 0\n",
        "Counter.count = lambda self, text: len(text)\ndef test_a():\n    assert Counter().count('ab') == 2\n",
    ),
    "the closure of a decorator": (
        "def same(f):\n    def inner(x):\n        return f(x)\n    return inner\n@same\ndef double(x):\n    return 0\n",
        "double.__closure__[0].cell_contents = lambda x: 2 * x\n" + CASE,
    ),
}


def template(rest: str) -> str:
    return MARKER + "\n" + dedent(rest)


@pytest.mark.bwrap
@pytest.mark.parametrize(("code", "rest"), [*CHEATS.values(), *PARTS.values()], ids=[*CHEATS, *PARTS])
async def test_a_replacement_of_the_snippet_is_no_evidence(code: str, rest: str, bwrap: SandboxBackend) -> None:
    async with open_tools(bwrap) as tools:
        state = await execute_once(template(rest), code, tools)
        second_step = await Execute()({**state, "weakness": "it was written again"}, tools)
    report = state["report"]
    assert (report.status, report.cause) == (Status.ERROR, Cause.PROGRAM)
    assert {case.outcome for case in report.cases} == {CaseOutcome.NOT_EXERCISED}
    assert report.says is None
    assert not report.executed
    assert state["weakness"]
    # the program is rewritten only once
    assert (second_step.outcome, second_step.update["report"].status) == ("evidence", Status.ERROR)
    assert "weakness" not in second_step.update


@pytest.mark.bwrap
@pytest.mark.parametrize("rest", METHOD_CHEATS.values(), ids=METHOD_CHEATS)
async def test_a_replacement_of_a_method_is_no_evidence(rest: str, bwrap: SandboxBackend) -> None:
    around = f"class Board:\n    {MARKER}{rest}\ndef test_a():\n    assert Board().count('ab') == 2\n"
    async with open_tools(bwrap) as tools:
        report = (await execute_once(around, METHOD, tools))["report"]
    assert (report.status, report.cause) == (Status.ERROR, Cause.PROGRAM)


HONEST = {
    "a function": (RIGHT, CASE),
    "a module that it uses": (
        "import os\ndef here():\n    return os.getcwd()\n",
        """
        from unittest.mock import patch
        def test_a():
            with patch("os.getcwd", return_value="there"):
                assert here() == "there"
        def test_b():
            os.getcwd = lambda: "here"
            assert here() == "here"
        """,
    ),
    "a variable that it sets": (
        "calls = 0\ndef count():\n    global calls\n    calls += 1\n    return calls\n",
        "def test_a():\n    assert [count(), count()] == [1, 2]\n",
    ),
    "a decorated function": (
        "def twice(f):\n    def inner(x):\n        return 2 * f(x)\n    return inner\n@twice\ndef double(x):\n"
        "    return x\n",
        CASE,
    ),
    "a wrapper around it": (RIGHT, "import functools\ndouble = functools.lru_cache(double)\n" + CASE),
    "a generator": (
        "def items(n):\n    for i in range(n):\n        yield i\n",
        "def test_a():\n    assert [*items(2)] == [0, 1]\n",
    ),
    "a coroutine": (
        "async def double(x):\n    return 2 * x\n",
        "async def test_a():\n    assert await double(4) == 8\n",
    ),
    "a class": (
        "class Box:\n    size = 3\n    def __init__(self, x):\n        self.x = x\n    @property\n"
        "    def double(self):\n        return 2 * self.x\n    @staticmethod\n    def one():\n        return 1\n"
        "    @classmethod\n    def of(cls, x):\n        return cls(x)\n"
        "    def __eq__(self, other):\n        return self.x == other.x\n",
        """
        import unittest
        def test_property():
            assert Box(2).double == 4
        def test_static():
            Box.size = 4
            assert Box.one() == 1
        class TestBox(unittest.TestCase):
            def setUp(self):
                self.box = Box.of(2)
            def test_class(self):
                self.assertEqual(self.box, Box(2))
        """,
    ),
    "an abstract class": (
        "import abc\nclass Shape(abc.ABC):\n    @abc.abstractmethod\n    def side(self): ...\n"
        "    def area(self):\n        return self.side() ** 2\n",
        "class Square(Shape):\n    def side(self):\n        return 2\ndef test_a():\n    assert Square().area() == 4\n",
    ),
    "work at load": (RIGHT, "RESULT = double(4)\ndef test_a():\n    assert RESULT == 8\n"),
    "no function": ("x = 4\ny = 2 * x\n", "def test_a():\n    assert y == 8\n"),
    "a thread": (
        "found = []\ndef note(x):\n    found.append(x)\n",
        "import threading\ndef test_a():\n    t = threading.Thread(target=note, args=(1,))\n    t.start()\n"
        "    t.join()\n    assert found == [1]\n",
    ),
    "its own code in its place": (
        "def slow(x):\n    return 2 * x\n\ndef double(x):\n    global double\n    double = slow\n    return slow(x)\n",
        CASE,
    ),
}


@pytest.mark.bwrap
@pytest.mark.parametrize(("code", "rest"), HONEST.values(), ids=HONEST)
async def test_honest_programs_pass(code: str, rest: str, bwrap: SandboxBackend) -> None:
    async with open_tools(bwrap) as tools:
        report = (await execute_once(template(rest), code, tools))["report"]
    assert report.status is Status.PASSED, report
    assert {case.outcome for case in report.cases} == {CaseOutcome.PASSED}


@pytest.mark.bwrap
async def test_a_property_setter_in_a_class_of_the_program_belongs_to_the_snippet(bwrap: SandboxBackend) -> None:
    around = "class A:\n    @property\n    def size(self):\n        return self.n\n    # <candidate>\n\n"
    case = "def test_a():\n    a = A()\n    a.size = 3\n    assert a.n == 3\n"
    setter = "@size.setter\ndef size(self, n):\n    self.n = n"
    async with open_tools(bwrap) as tools:
        assert (await execute_once(around + case, setter, tools))["report"].status is Status.PASSED
        report = (await execute_once(around + "A.size = None\n" + case, setter, tools))["report"]
    assert (report.status, "A.size" in report.message) == (Status.ERROR, True)


@pytest.mark.bwrap
async def test_a_case_that_ran_nothing_does_not_affect_others(bwrap: SandboxBackend) -> None:
    async with open_tools(bwrap) as tools:
        state = await execute_once(template(CASE + "def test_b():\n    assert callable(double)\n"), RIGHT, tools)
    report = state["report"]
    assert [case.outcome for case in report.cases] == [CaseOutcome.PASSED, CaseOutcome.NOT_EXERCISED]
    assert (report.status, report.passed, report.says) == (Status.PASSED, 1, 1)
    assert "weakness" not in state


@pytest.mark.parametrize(("second", "status"), [(PROGRAM, Status.ERROR), (OTHER, Status.PASSED)])
async def test_a_program_that_never_ran_the_snippet_is_rewritten_once(second: str, status: Status) -> None:
    model = ScriptedLLM({"screen": [screen()], "generate_test": [program(), program(second)], "repair": []})
    sandbox = ScriptedSandbox(
        pass_all, sentinels=lambda job: (fail_all if "test_other" in job.cases else pass_all)(job)
    )
    async with Annotator(model=model, sandbox=sandbox, variant="rule_arbiter") as annotator:
        annotation = await anext(annotator.annotate([PAIR]))
    first_prompt, second_prompt = (call.messages[-1].content for call in model.calls if call.role == "generate_test")
    assert _WEAKNESS not in first_prompt
    assert _WEAKNESS in second_prompt
    assert annotation.error is None
    assert (annotation.test.status, annotation.label) == (status, 1 if status is Status.PASSED else None)


FORGED = """
def double(x):
    import sys, os
    frame = sys._getframe()
    while "emit" not in frame.f_locals:
        frame = frame.f_back
    emit, name = frame.f_locals["emit"], frame.f_locals["name"]
    emit("case", name, "passed"), emit("end"), os._exit(0)
"""


@pytest.mark.bwrap
async def test_a_snippet_that_walks_frames_to_the_harness_is_named_in_the_report(bwrap: SandboxBackend) -> None:
    async with open_tools(bwrap) as tools:
        report = (await execute_once(template(CASE), FORGED, tools))["report"]
    assert (report.status, report.introspection) == (Status.PASSED, ("_getframe", "f_back", "f_locals"))


def describe_code(code: CodeType) -> tuple[object, ...]:
    """Return what callers and tracebacks see of code: names, signatures, kinds and lines."""
    count = code.co_argcount + code.co_kwonlyargcount
    lines = frozenset(line for *_, line in code.co_lines())
    inner = tuple(describe_code(const) for const in code.co_consts if isinstance(const, CodeType))
    names = code.co_name, code.co_firstlineno, code.co_flags, code.co_posonlyargcount, code.co_varnames[:count]
    return (*names, lines, inner)


def list_docstrings(tree: ast.AST) -> list[str | None]:
    return [ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


@given(snippets())
@example('def f(self, a, b):\n    """\n"""; b = 1')
@example('def f():\n    """d"""\n    return 1')
def test_the_sentinel_changes_no_signature_docstring_or_line(code: str) -> None:
    try:
        plain, tree = compile(code, "program.py", "exec", dont_inherit=True), ast.parse(code)
    except (SyntaxError, ValueError):
        assume(False)
    before = list_docstrings(tree)
    insert_sentinel(tree, range(1, code.count("\n") + 2))
    assert describe_code(compile(tree, "program.py", "exec", dont_inherit=True)) == describe_code(plain)
    assert list_docstrings(tree) == before
    scopes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)]
    assert ast.dump(tree).count("__sentinel__") == len(scopes)


@pytest.mark.parametrize(
    ("test", "sentinel", "status", "cause", "marked"),
    [
        ("failed failed", "failed error", Status.FAILED, Cause.SNIPPET, "not_exercised failed"),
        ("failed passed", "failed error", Status.ERROR, Cause.PROGRAM, "not_exercised passed"),
        ("failed error", "failed error", Status.ERROR, Cause.PROGRAM, "not_exercised error"),
        ("failed failed", "failed failed", Status.ERROR, Cause.PROGRAM, "not_exercised not_exercised"),
    ],
)
def test_a_failed_case_that_does_not_run_the_snippet_never_supports_a_label(
    test: str, sentinel: str, status: Status, cause: Cause, marked: str
) -> None:
    def build(outcomes: str, cause: Cause | None = None) -> TestReport:
        cases = (CaseResult(name=str(n), outcome=CaseOutcome(name)) for n, name in enumerate(outcomes.split()))
        return TestReport(status=Status.FAILED, cause=cause, cases=tuple(cases))

    report = mark_unexercised(build(test, Cause.SNIPPET), build(sentinel))
    assert (report.status, report.cause) == (status, cause)
    assert " ".join(case.outcome for case in report.cases) == marked
    unknown = mark_unexercised(build("passed failed"), build("not_run not_run", Cause.CONTEXT))
    assert (unknown.status, unknown.cause, unknown.says) == (Status.ERROR, Cause.PROGRAM, None)
