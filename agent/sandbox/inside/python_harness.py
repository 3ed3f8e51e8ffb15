"""Runs the cases of a Python program and reports each; sent to the sandbox as source.

`main(job, emit)` is what the supervisor's child calls; `source` joins the other parts to this one. What decides how a
case ends is taken before the program loads, and is not looked up in modules afterwards. Whatever else a program could
change to pass without merit is looked at before it loads, and again after loading and after each case: built-in names,
unittest's and pytest's own, and the code of the program's functions outside of the snippet's lines (options
`first_line`, `last_line`).
"""

from __future__ import annotations

import builtins
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agent.sandbox.inside.python_functions import bindings, functions
    from agent.sandbox.inside.python_guard import FUNCTION, Guard
    from agent.sandbox.inside.python_pytest import pytest_runner

NAME = "program.py"
MODULE = "test_program"
MAX_MESSAGE = 2000
MAX_FRAMES = 40
ONLY_AST = 0x400
FUTURE_FLAGS = 0x1FE0000
"""The flags that `from __future__ import` leaves in code, of Python 3.8 and later."""
NEVER_RUNS = 0x20 | 0x80 | 0x200
"""Flags of code that a plain call does not run: generators and coroutines."""
COROUTINE, GENERATOR, ASYNC_GENERATOR = types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType
IS_COROUTINE = 0x80


def main(job: Any, emit: Callable[..., None]) -> None:
    module = types.ModuleType(MODULE)
    space = vars(module)
    # gives the text to whoever asks by PEP 302, tracebacks and inspect, and by no function of ours
    loader = types.SimpleNamespace(get_source={MODULE: job.program}.get)
    space.update(__file__=NAME, __builtins__=builtins, __loader__=loader)
    sys.modules[MODULE] = module
    try:
        tree: Any = compile(job.program, NAME, "exec", ONLY_AST, dont_inherit=True)
        run_cases = runner(job, module)
        sys.path.append(job.work)  # an earlier program may have left modules there: none of them is the harness's
        guard = Guard(emit, space)
        load(tree, job.options, space, guard)
    except BaseException as error:
        tell(emit, "load", "", error)
        return
    run_cases(emit, guard.check)


def load(tree: Any, options: dict[str, str], space: dict[str, Any], guard: Guard) -> None:
    """Execute the program in parts: what stands before the snippet is looked at before and after the snippet runs."""
    first, last = (int(options.get(name, 0)) for name in ("first_line", "last_line"))
    snippet = range(first, last + 1)
    future = compile(tree, NAME, "exec", dont_inherit=True).co_flags & FUTURE_FLAGS
    parts: list[list[Any]] = [[], [], []]
    for node in tree.body:
        parts[(node.lineno >= first) + (node.lineno > last) if first else 0].append(node)
    bound = [name for node in tree.body if node.lineno not in snippet for name in bindings(node)]
    for number, part in enumerate(parts):
        if not part:
            continue
        if number == 1:
            guard.watch()
        code = compile(type(tree)(body=part, type_ignores=[]), NAME, "exec", future, dont_inherit=True)
        exec(code, space)
        guard.expect(functions(part, code, snippet, bound))
        guard.check()


def runner(job: Any, module: types.ModuleType) -> Callable[..., None]:
    """Return what runs the cases; it holds all that it uses, for the program can change modules and no variables."""
    if job.options.get("pytest") == "1":
        return pytest_runner(module)
    run_async = run_method = None
    if "unittest" in job.program or any("." in name for name in job.cases):
        run_method = method_runner(job.program)
    if "asyncio" in job.program or "async def test" in job.program:
        import asyncio

        run_async = asyncio.run

    def run_plain(emit: Callable[..., None], check: Callable[[], None]) -> None:
        # all of them are looked up before any runs: a case may not put another in a later one's place
        cases = [(name, find(vars(module), name)) for name in job.cases]
        for name, case in cases:
            if case is not None:
                emit("start", name)
                if run_method is not None and isinstance(case, tuple):
                    run_method(name, case[0], case[1], emit)
                else:
                    run_function(name, case, emit, run_async)
                check()

    return run_plain


def find(space: dict[str, Any], name: str) -> Any:
    """Return what runs a case: a function, or a class and the name of its method."""
    owner, _, method = name.rpartition(".")
    case = space.get(owner or name)
    if not owner:
        return case if isinstance(case, FUNCTION) else None
    if isinstance(case, type) and isinstance(getattr(case, method, None), FUNCTION):
        return case, method
    return None


def run_function(name: str, function: Callable[[], Any], emit: Callable[..., None], run_async: Any) -> None:
    try:
        result = function()
        if isinstance(result, COROUTINE) and run_async is not None:
            ended: list[bool] = []
            run_async(to_its_end(result, ended))
            if not ended:
                raise RuntimeError("the test was not run to its end")
        elif isinstance(result, (COROUTINE, GENERATOR, ASYNC_GENERATOR)):
            raise TypeError("the body of the test did not run: calling it gives a " + type(result).__name__)
    except BaseException as error:
        tell(emit, "case", name, error)
    else:
        emit("case", name, "passed")


async def to_its_end(body: Any, ended: list[bool]) -> Any:
    result = await body
    ended.append(True)
    return result


def method_runner(program: str) -> Callable[..., None]:
    """Return what runs a method of a unittest class."""
    import unittest

    if "mock" in program:
        import unittest.mock
    make, suite = result_class(unittest), unittest.TestSuite
    call_plainly: Any = unittest.TestCase._callTestMethod  # type: ignore[attr-defined]
    if "IsolatedAsyncioTestCase" in program:
        unittest.IsolatedAsyncioTestCase  # noqa: B018  # loads it, as of Python 3.11

    def run_method(name: str, owner: Any, method: str, emit: Callable[..., None]) -> None:
        result = make()
        ended: list[bool] = []
        try:
            if getattr(owner, method).__code__.co_flags & NEVER_RUNS and owner._callTestMethod is call_plainly:
                raise TypeError("the body of the test would not run: an async test needs IsolatedAsyncioTestCase")
            case = owner(method)
            vars(case)[method] = noting(getattr(case, method), ended)
            suite([case]).run(result)
            if result.testsRun != 1:
                result.note("skipped", "the case was not run")
            if not (result.succeeded and ended):
                result.note("error", "the case was not run to its end")
        except BaseException as error:
            result.note("error", error)
        finish(emit, name, result.problem)

    return run_method


def noting(method: Any, ended: list[bool]) -> Any:
    """Return what stands in for a bound method and notes that it came to its end."""
    function = method.__func__

    async def later(*values: Any, **named: Any) -> Any:
        return await to_its_end(method(*values, **named), ended)

    def at_once(*values: Any, **named: Any) -> Any:
        result = method(*values, **named)
        ended.append(True)
        return result

    stand_in: Any = later if function.__code__.co_flags & IS_COROUTINE else at_once
    stand_in.__name__, stand_in.__qualname__ = function.__name__, function.__qualname__
    stand_in.__doc__, stand_in.__module__ = function.__doc__, function.__module__
    stand_in.__dict__.update(function.__dict__, __wrapped__=method)
    return stand_in


def result_class(unittest: Any) -> Any:
    """Return a TestResult that keeps the first problem of a case: an outcome with an exception or a reason."""

    class Result(unittest.TestResult):  # type: ignore[misc]
        problem: Any = None
        succeeded = False

        def note(self, outcome: str, problem: Any) -> None:
            if self.problem is None:
                self.problem = (outcome, problem)

        def addSuccess(self, _test: Any) -> None:
            self.succeeded = True

        def addError(self, _test: Any, err: Any) -> None:
            self.note("error", err[1])

        def addFailure(self, _test: Any, err: Any) -> None:
            self.note("failed", err[1])

        def addSubTest(self, test: Any, _subtest: Any, err: Any) -> None:
            if err is not None:
                self.note("failed" if issubclass(err[0], test.failureException) else "error", err[1])

        def addSkip(self, _test: Any, reason: str) -> None:
            self.note("skipped", reason)

        def addExpectedFailure(self, _test: Any, _err: Any) -> None:
            self.note("skipped", "an expected failure shows nothing")

        def addUnexpectedSuccess(self, _test: Any) -> None:
            self.note("failed", AssertionError("the failure that the test expects did not come"))

    return Result


def finish(emit: Callable[..., None], name: str, problem: Any) -> None:
    """Report how a case ended: `problem` is None, or an outcome with an exception or a reason."""
    if problem is None:
        emit("case", name, "passed")
    elif isinstance(problem[1], BaseException):
        tell(emit, "case", name, problem[1], problem[0])
    else:
        emit("case", name, problem[0], "", str(problem[1])[:MAX_MESSAGE])


def tell(emit: Callable[..., None], kind: str, name: str, error: BaseException, outcome: str = "") -> None:
    """Report an exception with the innermost part of its traceback."""
    frames: list[tuple[str, int, str]] = []
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_filename != OWN_NAME:
            frames.append((code.co_filename, traceback.tb_lineno, code.co_name))
        traceback = traceback.tb_next
    if not frames and isinstance(error, SyntaxError) and error.filename == NAME:
        frames.append((NAME, error.lineno or 0, "<module>"))
    error_type: str = type.__dict__["__name__"].__get__(type(error))
    if kind == "load":
        outcome = "error"
    elif not outcome:
        skipped = error_type in ("SkipTest", "Skipped") and type(error).__module__ in (
            "unittest.case",
            "_pytest.outcomes",
        )
        outcome = "skipped" if skipped else "failed" if isinstance(error, AssertionError) else "error"
    emit(kind, name, outcome, error_type, message_of(error), frames[-MAX_FRAMES:])


def message_of(error: BaseException) -> str:
    try:
        return str(error)[:MAX_MESSAGE]
    except BaseException as other:
        return "<no message: str() raised %s>" % type(other).__name__


OWN_NAME = main.__code__.co_filename
