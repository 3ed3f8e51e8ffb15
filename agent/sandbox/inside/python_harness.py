"""Runs the cases of a Python program and reports each; sent to the sandbox as source.

`main(job, emit)` is what the supervisor's child calls; `source` joins this part to the others. What decides how a
case ends is taken before the program loads, and is not looked up in modules afterwards. Whatever else a program could
change to pass without merit is looked at before it loads, and again after loading and after each case: built-in names,
unittest's and pytest's own, the code of the program's functions outside of the snippet's lines (options `first_line`,
`last_line`), and what the snippet's names stand for.

With the option `sentinel` no function of the snippet gets further than its first statement, which raises: a case that
passes all the same never ran the snippet.
"""

from __future__ import annotations

import builtins
import gc
import os
import sys
import types
from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from agent.sandbox.inside.python_guard import FUNCTION, Guard, bindings, functions
    from agent.sandbox.inside.python_pytest import pytest_runner
    from agent.sandbox.inside.python_reports import MODULE, NAME, finish, report_error

    Line = tuple[str, int, str]

ONLY_AST = 0x400
FUTURE_FLAGS = 0x1FE0000
"""The flags that `from __future__ import` leaves in code, of Python 3.8 and later."""
NEVER_RUNS = 0x20 | 0x80 | 0x200
"""Flags of code that a plain call does not run: generators and coroutines."""
COROUTINE, GENERATOR, ASYNC_GENERATOR = types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType
IS_COROUTINE = 0x80
SENTINEL = "__sentinel__"
MAX_STACKS = 32
MAX_LINES = 40
NEXT = ("cr_await", "gi_yieldfrom", "ag_await")
FRAME = ("cr_frame", "gi_frame", "ag_frame")


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
        report_error(emit, "load", "", error)
        return
    run_cases(emit, guard.check)


def load(tree: Any, options: dict[str, str], space: dict[str, Any], guard: Guard) -> None:
    """Execute the program in parts: what stands before the snippet is looked at before and after the snippet runs."""
    first, last = (int(options.get(name, 0)) for name in ("first_line", "last_line"))
    snippet = range(first, last + 1)
    sentinel = Sentinel()
    if options.get("sentinel") == "1":
        plant(tree, snippet)
        space[SENTINEL] = sentinel
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
        sentinel.armed = number != 1
        exec(code, space)
        guard.expect(functions(part, code, snippet, bound))
        if number == 1 or not parts[1]:
            guard.watch_snippet(snippet)
        guard.check()
    sentinel.armed = True


class SnippetEntered(BaseException):
    """Raised where a function of the snippet would begin."""


class Sentinel:
    """What each function of the snippet calls first in a sentinel run. The snippet itself loads as ever."""

    armed = False

    def __call__(self) -> None:
        if self.armed:
            raise SnippetEntered("the snippet was called")


def plant(tree: Any, snippet: range) -> None:
    """Have every function and lambda of the snippet call the sentinel first; lines and signatures stay as they are."""
    pending = [tree]
    while pending:
        node = pending.pop()
        values = [getattr(node, field, None) for field in node._fields]
        nested = [item for value in values if isinstance(value, list) for item in value]
        pending += [item for item in values + nested if hasattr(item, "_fields")]
        kind = type(node).__name__
        if getattr(node, "lineno", 0) not in snippet:
            continue
        if kind in ("FunctionDef", "AsyncFunctionDef"):
            first = node.body[0]
            has_docstring = type(first).__name__ == "Expr" and isinstance(getattr(first.value, "value", None), str)
            follows = (node.body[has_docstring:] or node.body)[0]
            node.body.insert(has_docstring, parsed(SENTINEL + "()", follows.lineno))
        elif kind == "Lambda":
            either = parsed(SENTINEL + "() or None", node.lineno).value
            either.values[1] = node.body
            node.body = either


def parsed(text: str, line: int) -> Any:
    """Return the statement of this text as one of this line."""
    statement: Any = compile(text, "<sentinel>", "exec", ONLY_AST, dont_inherit=True).body[0]
    pending = [statement]
    while pending:
        node = pending.pop()
        if hasattr(node, "lineno"):
            node.lineno = node.end_lineno = line
        pending += [item for item in vars(node).values() if hasattr(item, "_fields")]
        pending += [each for item in vars(node).values() if isinstance(item, list) for each in item]
    return statement


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
            run_async(run_whole(result, ended))
            if not ended:
                raise RuntimeError("the test was not run to its end")
        elif isinstance(result, (COROUTINE, GENERATOR, ASYNC_GENERATOR)):
            raise TypeError("the body of the test did not run: calling it gives a " + type(result).__name__)
    except BaseException as error:
        report_error(emit, "case", name, error)
    else:
        emit("case", name, "passed")


async def run_whole(body: Any, ended: list[bool]) -> Any:
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
        return await run_whole(method(*values, **named), ended)

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


def stack_writer(descriptor: int) -> Callable[..., None]:
    """Return a signal's handler that writes the stacks of the other threads and of pending tasks, as faulthandler does.

    It holds all that it uses, whatever a program changes meanwhile.
    """
    write, frames, own, modules = os.write, sys._current_frames, get_ident(), sys.modules

    def stacks() -> Iterator[list[Line]]:
        for thread, frame in frames().items():
            if thread != own:
                yield of_frame(frame)
        tasks = modules.get("asyncio.tasks")
        if tasks is not None:
            for task in tasks.all_tasks():
                yield of_awaiting(task.get_coro())

    def write_stacks(*_: Any) -> None:
        try:
            for _number, lines in zip(range(MAX_STACKS), stacks()):
                text = "".join('  File "%s", line %d in %s\n' % line for line in lines)
                write(descriptor, ("Other (most recent call first):\n" + text).encode("utf-8", "backslashreplace"))
        except BaseException:
            return  # no loop runs, or the program has changed what is looked at: the main thread's stack is there

    return write_stacks


def of_frame(frame: Any) -> list[Line]:
    """Return the innermost lines of a thread, the last call first."""
    lines: list[Line] = []
    while frame is not None and len(lines) < MAX_LINES:
        lines.append((frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name))
        frame = frame.f_back
    return lines


def of_awaiting(each: Any) -> list[Line]:
    """Return the lines in which a coroutine and whatever it awaits stand, the last call first."""
    lines: list[Line] = []
    while each is not None and len(lines) < MAX_LINES:
        frame = first_of(each, FRAME)
        if frame is not None:
            lines.append((frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name))
            each = first_of(each, NEXT)
        else:  # what steps through an async generator names it nowhere
            each = next((one for one in gc.get_referents(each) if isinstance(one, ASYNC_GENERATOR)), None)
    return lines[::-1]


def first_of(owner: Any, names: tuple[str, ...]) -> Any:
    return next((value for name in names if (value := getattr(owner, name, None)) is not None), None)
