"""Runs the cases of a Python program and reports their outcomes.

This file is the last part of the Python harness. All parts are joined and sent to the sandbox as source.

The supervisor's child process calls `main(job, emit)`. All objects that decide the outcome of a case are looked up
before the program loads, because the program can change modules. While the program loads and after each case, the guard
checks for other changes that could let the program pass. The guard watches built-in names, the internals of unittest
and pytest, the program's functions outside the snippet, and the values of the snippet's names. The `first_line` and
`last_line` options locate the snippet.

With the `sentinel` option, the first statement of every function in the snippet raises an exception. If a case still
passes, it never called the snippet.

With the `module` option, the snippet is not a part of the program. It replaces its definition in the module, which is
imported before the program loads. With the `probe` option, the module's source is reported before its import.

With the `sql` option, the snippet is the option's value. Its lines in the program contain a function without a body. In
sentinel runs, the snippet is empty.
"""

from __future__ import annotations

import builtins
import gc
import marshal
import os
import sys
import types
from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from agent.sandbox.inside.python_context import Context, ContextError
    from agent.sandbox.inside.python_guard import FUNCTION, Guard
    from agent.sandbox.inside.python_helpers import Helpers
    from agent.sandbox.inside.python_pytest import make_pytest_runner
    from agent.sandbox.inside.python_reports import MODULE, NAME, report_case, report_error
    from agent.sandbox.inside.python_sentinel import ONLY_AST, SENTINEL, SENTINEL_MODULE, Sentinel, insert_sentinel
    from agent.sandbox.inside.python_sql import make_candidate

    Line = tuple[str, int, str]

FUTURE_FLAGS = 0x1FE0000
"""The compiler flags that `from __future__ import` sets in Python 3.8 and later."""
NEVER_RUNS = 0x20 | 0x80 | 0x200
"""The code flags of generators and coroutines. Calling such a function does not run its body."""
COROUTINE, GENERATOR, ASYNC_GENERATOR = types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType
IS_COROUTINE = 0x80
FOLDER = "/dev/shm/.program-%d" % os.getpid()
"""The folder from which child processes import the program. Programs rarely list or clear this file system."""
MAX_STACKS = 32
MAX_LINES = 40
NEXT = ("cr_await", "gi_yieldfrom", "ag_await")
FRAME = ("cr_frame", "gi_frame", "ag_frame")


class Prepared:
    """A program that is ready to load. With a `context`, the snippet's module has been imported."""

    guard: Guard
    context: Context | None = None
    candidate: Any = None
    run_cases: Callable[..., None]

    def __init__(self, job: Any) -> None:
        self.job = job
        self.tree: Any = None
        self.sentinel = Sentinel()
        self.module = types.ModuleType(MODULE)
        self.namespace = vars(self.module)
        # tracebacks and inspect read the source through this PEP 302 loader
        loader = types.SimpleNamespace(get_source={MODULE: job.program}.get)
        self.namespace.update(__file__=NAME, __builtins__=builtins, __loader__=loader)
        first, last = (int(job.options.get(name, 0)) for name in ("first_line", "last_line"))
        self.snippet = range(first, last + 1)


def main(job: Any, emit: Callable[..., None]) -> None:
    prepared = prepare(job, emit)
    if prepared is not None:
        run(prepared, emit)


def prepare(job: Any, emit: Callable[..., None]) -> Prepared | None:
    """Make the program ready to load. Returns None after reporting an error."""
    prepared, name = Prepared(job), ""
    sys.modules[MODULE] = prepared.module
    try:
        prepared.tree = parse_program(job)
        prepared.run_cases = make_runner(job, prepared.module)
        if "sql" in job.options:
            script = "" if job.options.get("sentinel") == "1" else job.options["sql"]
            prepared.candidate = make_candidate(script, prepared.snippet.start, emit)
        # after the harness's imports, because earlier programs may have left modules there
        sys.path += [FOLDER, job.work]
        # an empty entry would be the working folder
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [FOLDER, os.environ.get("PYTHONPATH")]))
        prepared.guard = Guard(emit, prepared.namespace)
        if job.options.get("module"):
            name = "context"
            open_module(prepared, emit)
    except BaseException as error:
        report_error(emit, "load", name, error)
        return None
    return prepared


def run(prepared: Prepared, emit: Callable[..., None]) -> None:
    """Load the program and run its cases."""
    prepared.guard.emit = emit
    try:
        if prepared.context is not None:
            emit("context", prepared.context.reach)
        load(prepared)
    except BaseException as error:
        report_error(emit, "load", "", error)
        return
    prepared.run_cases(emit, prepared.guard.check)


def parse_program(job: Any) -> Any:
    return compile(job.program, NAME, "exec", ONLY_AST, dont_inherit=True)


def open_module(prepared: Prepared, emit: Callable[..., None]) -> None:
    """Import the snippet's module with the snippet in its place, and remove the snippet from the program."""
    job, tree, guard, snippet = prepared.job, prepared.tree, prepared.guard, prepared.snippet
    names = {}
    if job.options.get("sentinel") == "1":
        insert_sentinel(tree, snippet)
        names[SENTINEL] = prepared.sentinel
    nodes = [node for node in tree.body if node.lineno in snippet]
    tree.body = [node for node in tree.body if node.lineno not in snippet]
    context = Context(job.options, snippet, names)
    if job.options.get("probe") == "1":
        context.report_source(emit)
    context.compile([node for node in parse_program(job).body if node.lineno in snippet], nodes)
    if "contextlib" in job.program:
        import contextlib  # noqa: F401  # the guard must know the original
    guard.watch()
    module = context.load()
    for change in guard.list_changes():
        raise ContextError("its import changes what verdicts depend on: " + change)
    guard.watch()
    guard.watch_snippet(snippet, vars(module), context.module)
    prepared.context = context


def load(prepared: Prepared) -> None:
    """Execute the program in three parts (before, within and after the snippet). Check for changes after each part."""
    job, tree, namespace, guard = prepared.job, prepared.tree, prepared.namespace, prepared.guard
    snippet, sentinel, is_in_module = prepared.snippet, prepared.sentinel, prepared.context is not None
    source = job.program
    if is_in_module:
        lines = source.split("\n")
        source = "\n".join("" if number in snippet else line for number, line in enumerate(lines, 1))
    elif job.options.get("sentinel") == "1":
        insert_sentinel(tree, snippet)
        namespace[SENTINEL] = sentinel
    whole = compile(tree, NAME, "exec", dont_inherit=True)
    save_module(SENTINEL_MODULE.format(SENTINEL, marshal.dumps(whole)) if SENTINEL in namespace else source)
    future = whole.co_flags & FUTURE_FLAGS
    first, last = snippet.start, snippet.stop - 1
    parts: list[list[Any]] = [[], [], []]
    for node in tree.body:
        parts[(node.lineno >= first) + (node.lineno > last) if first else 0].append(node)
    helpers = guard.helpers = Helpers(namespace, tree, snippet)
    for number, part in enumerate(parts):
        if not part:
            continue
        if number == 1:
            guard.watch()
        code = compile(type(tree)(body=part, type_ignores=[]), NAME, "exec", future, dont_inherit=True)
        sentinel.armed = number != 1
        exec(code, namespace)
        if number == 1 and prepared.candidate is not None:
            namespace["run_candidate"] = prepared.candidate
        if number != 1:
            helpers.watch(part, code)
        if number == 1 or not (parts[1] or is_in_module):
            guard.watch_snippet(snippet, namespace)
        guard.check()
    if is_in_module:
        guard.watch()
    sentinel.armed = True


def save_module(source: str) -> None:
    """Save the program for its child processes. In a sandbox without free space, they cannot import the program."""
    try:
        os.mkdir(FOLDER)
        with open(os.path.join(FOLDER, MODULE + ".py"), "w", encoding="utf-8") as file:
            file.write(source)
    except OSError:
        return


def make_runner(job: Any, module: types.ModuleType) -> Callable[..., None]:
    """Return the function that runs the cases. It does not look up names in modules, which the program can change."""
    if job.options.get("pytest") == "1":
        return make_pytest_runner(module)
    run_async = run_method = None
    if "unittest" in job.program or any("." in name for name in job.cases):
        run_method = make_method_runner(job.program)
    if "asyncio" in job.program or "async def test" in job.program:
        import asyncio

        run_async = asyncio.run

    def run_plain(emit: Callable[..., None], check: Callable[[], None]) -> None:
        # look up all cases before any of them runs, because a case could replace a later case
        cases = [(name, find_case(vars(module), name)) for name in job.cases]
        for name, case in cases:
            if case is not None:
                emit("start", name)
                if run_method is not None and isinstance(case, tuple):
                    run_method(name, case[0], case[1], emit)
                else:
                    run_function(name, case, emit, run_async)
                check()

    return run_plain


def find_case(namespace: dict[str, Any], name: str) -> Any:
    """Return a case's function, or the class and method name of a unittest case. Returns None if neither exists."""
    owner, _, method = name.rpartition(".")
    case = namespace.get(owner or name)
    if not owner:
        return case if isinstance(case, FUNCTION) else None
    if isinstance(case, type) and isinstance(getattr(case, method, None), FUNCTION):
        return case, method
    return None


def run_function(name: str, function: Callable[[], Any], emit: Callable[..., None], run_async: Any) -> None:
    try:
        result = function()
        if isinstance(result, COROUTINE) and run_async is not None:
            finished: list[bool] = []
            run_async(await_to_end(result, finished))
            if not finished:
                raise RuntimeError("the test did not run to completion")
        elif isinstance(result, (COROUTINE, GENERATOR, ASYNC_GENERATOR)):
            raise TypeError("the body of the test did not run: calling the test returned a " + type(result).__name__)
    except BaseException as error:
        report_error(emit, "case", name, error)
    else:
        emit("case", name, "passed")


async def await_to_end(body: Any, finished: list[bool]) -> Any:
    result = await body
    finished.append(True)
    return result


def make_method_runner(program: str) -> Callable[..., None]:
    """Return the function that runs a method of a unittest class."""
    import unittest

    if "mock" in program:
        import unittest.mock
    make, suite = make_result_class(unittest), unittest.TestSuite
    call_plainly: Any = unittest.TestCase._callTestMethod  # type: ignore[attr-defined]
    if "IsolatedAsyncioTestCase" in program:
        unittest.IsolatedAsyncioTestCase  # noqa: B018  # imported lazily since Python 3.11

    def run_method(name: str, owner: Any, method: str, emit: Callable[..., None]) -> None:
        result = make()
        finished: list[bool] = []
        try:
            if getattr(owner, method).__code__.co_flags & NEVER_RUNS and owner._callTestMethod is call_plainly:
                raise TypeError("the body of the test would not run: async tests need IsolatedAsyncioTestCase")
            case = owner(method)
            vars(case)[method] = record_end(getattr(case, method), finished)
            suite([case]).run(result)
            if result.testsRun != 1:
                result.set_problem("skipped", "the case did not run")
            if not (result.succeeded and finished):
                result.set_problem("error", "the case did not run to completion")
        except BaseException as error:
            result.set_problem("error", error)
        report_case(emit, name, result.problem)

    return run_method


def record_end(method: Any, finished: list[bool]) -> Any:
    """Wrap a bound method so that True is appended to `finished` when the method returns."""
    function = method.__func__

    async def call_async(*values: Any, **keywords: Any) -> Any:
        return await await_to_end(method(*values, **keywords), finished)

    def call_sync(*values: Any, **keywords: Any) -> Any:
        result = method(*values, **keywords)
        finished.append(True)
        return result

    wrapper: Any = call_async if function.__code__.co_flags & IS_COROUTINE else call_sync
    wrapper.__name__, wrapper.__qualname__ = function.__name__, function.__qualname__
    wrapper.__doc__, wrapper.__module__ = function.__doc__, function.__module__
    wrapper.__dict__.update(function.__dict__, __wrapped__=method)
    return wrapper


def make_result_class(unittest: Any) -> Any:
    """Return a TestResult class that records the first problem of a case: an outcome, and an exception or a reason."""

    class Result(unittest.TestResult):  # type: ignore[misc]
        problem: Any = None
        succeeded = False

        def set_problem(self, outcome: str, problem: Any) -> None:
            if self.problem is None:
                self.problem = (outcome, problem)

        def addSuccess(self, _test: Any) -> None:
            self.succeeded = True

        def addError(self, _test: Any, err: Any) -> None:
            self.set_problem("error", err[1])

        def addFailure(self, _test: Any, err: Any) -> None:
            self.set_problem("failed", err[1])

        def addSubTest(self, test: Any, _subtest: Any, err: Any) -> None:
            if err is not None:
                self.set_problem("failed" if issubclass(err[0], test.failureException) else "error", err[1])

        def addSkip(self, _test: Any, reason: str) -> None:
            self.set_problem("skipped", reason)

        def addExpectedFailure(self, _test: Any, _err: Any) -> None:
            self.set_problem("skipped", "the test failed as expected, which proves nothing")

        def addUnexpectedSuccess(self, _test: Any) -> None:
            self.set_problem("failed", AssertionError("the test passed but is marked as an expected failure"))

    return Result


def make_stack_writer(descriptor: int) -> Callable[..., None]:
    """Return a signal handler that writes the stacks of other threads and pending tasks in faulthandler's format.

    The functions that the handler calls are looked up in advance, because a program may change modules.
    """
    write, frames, main_thread, modules = os.write, sys._current_frames, get_ident(), sys.modules

    def iterate_stacks() -> Iterator[list[Line]]:
        for thread, frame in frames().items():
            if thread != main_thread:
                yield list_frame_lines(frame)
        tasks = modules.get("asyncio.tasks")
        if tasks is not None:
            for task in tasks.all_tasks():
                yield list_awaiting_lines(task.get_coro())

    def write_stacks(*_: Any) -> None:
        try:
            for _number, lines in zip(range(MAX_STACKS), iterate_stacks()):
                text = "".join('  File "%s", line %d in %s\n' % line for line in lines)
                write(descriptor, ("Other (most recent call first):\n" + text).encode("utf-8", "backslashreplace"))
        except BaseException:
            return  # no event loop, or the program changed asyncio; faulthandler still writes the main thread's stack

    return write_stacks


def list_frame_lines(frame: Any) -> list[Line]:
    """Return the innermost frames of a thread's stack as lines, most recent call first."""
    lines: list[Line] = []
    while frame is not None and len(lines) < MAX_LINES:
        lines.append((frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name))
        frame = frame.f_back
    return lines


def list_awaiting_lines(awaitable: Any) -> list[Line]:
    """Return the current lines of a coroutine and of the awaitables that it awaits, most recent call first."""
    lines: list[Line] = []
    while awaitable is not None and len(lines) < MAX_LINES:
        frame = find_attribute(awaitable, FRAME)
        if frame is not None:
            lines.append((frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name))
            awaitable = find_attribute(awaitable, NEXT)
        else:  # an async generator's awaitable has no attribute for the generator
            awaitable = next((item for item in gc.get_referents(awaitable) if isinstance(item, ASYNC_GENERATOR)), None)
    return lines[::-1]


def find_attribute(owner: Any, names: tuple[str, ...]) -> Any:
    return next((value for name in names if (value := getattr(owner, name, None)) is not None), None)
