"""Runs the cases of a Python program and reports each; sent to the sandbox as source.

`main(job, emit)` is what the supervisor's child calls. Whatever a program could change to pass without merit is looked
at before it loads, and again after loading and after each case: built-in names, unittest's and pytest's own, and the
code of the program's functions outside of the snippet's lines (options `first_line`, `last_line`).
"""

from __future__ import annotations

import builtins
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

NAME = "program.py"
MODULE = "test_program"
PHASES = 3
"""What pytest reports of a case: set-up, call, tear-down."""
MAX_MESSAGE = 2000
MAX_FRAMES = 40
ONLY_AST = 0x400
FUTURE_FLAGS = 0x1FE0000
"""The flags that `from __future__ import` leaves in code, of Python 3.8 and later."""
NEVER_RUNS = 0x20 | 0x80 | 0x200
"""Flags of code that a plain call does not run: generators and coroutines."""
HARMLESS = frozenset({"_", "input", "print", "maxDiff", "longMessage", "__warningregistry__"})
"""Names that programs may replace: none of them can turn a failure into a success."""

SKIPS = (("unittest.case", "SkipTest"), ("_pytest.outcomes", "Skipped"))


def main(job: Any, emit: Callable[..., None]) -> None:
    module = types.ModuleType(MODULE)
    space = vars(module)
    space.update(__file__=NAME, __builtins__=builtins, __loader__=Source(job.program))
    sys.modules[MODULE] = module
    try:
        tree: Any = compile(job.program, NAME, "exec", ONLY_AST, dont_inherit=True)
        run_cases = runner(job, module)
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
    for part in parts:
        code = compile(type(tree)(body=part, type_ignores=[]), NAME, "exec", future, dont_inherit=True)
        exec(code, space)
        guard.expect(functions(part, code, snippet, bound))
        guard.check()


def runner(job: Any, module: types.ModuleType) -> Callable[..., None]:
    """Return what runs the cases, and import what it needs while all of that is as it was."""
    if job.options.get("pytest") == "1":
        import pytest  # noqa: F401

        return lambda emit, check: run_pytest(module, emit, check)
    if "unittest" in job.program or any("." in name for name in job.cases):
        import unittest  # noqa: F401
    if "async def test" in job.program:
        import asyncio  # noqa: F401

    return lambda emit, check: run_plain(job.cases, vars(module), emit, check)


def run_plain(names: list[str], space: dict[str, Any], emit: Callable[..., None], check: Callable[[], None]) -> None:
    # all of them are looked up before any runs: a case may not put another in a later one's place
    cases = [(name, find(space, name)) for name in names]
    for name, case in cases:
        if case is not None:
            emit("start", name)
            if isinstance(case, tuple):
                run_method(name, case[0], case[1], emit)
            else:
                run_function(name, case, emit)
            check()


def find(space: dict[str, Any], name: str) -> Any:
    """Return what runs a case: a function, or a class and the name of its method."""
    owner, _, method = name.rpartition(".")
    case = space.get(owner or name)
    if not owner:
        return case if isinstance(case, types.FunctionType) else None
    if isinstance(case, type) and isinstance(getattr(case, method, None), types.FunctionType):
        return case, method
    return None


def run_function(name: str, function: Callable[[], Any], emit: Callable[..., None]) -> None:
    asynchronous = sys.modules.get("asyncio")
    try:
        result = function()
        if isinstance(result, types.CoroutineType) and asynchronous is not None:
            asynchronous.run(result)
            if result.cr_frame is not None:
                raise RuntimeError("the test was not run to its end")
        elif isinstance(result, (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType)):
            raise TypeError("the body of the test did not run: calling it gives a " + type(result).__name__)
    except BaseException as error:
        tell(emit, "case", name, error)
    else:
        emit("case", name, "passed")


def run_method(name: str, owner: Any, method: str, emit: Callable[..., None]) -> None:
    import unittest

    result = result_class(unittest)()
    try:
        flags = getattr(owner, method).__code__.co_flags
        if flags & NEVER_RUNS and owner._callTestMethod is unittest.TestCase._callTestMethod:  # type: ignore[attr-defined]
            raise TypeError("the body of the test would not run: an async test needs IsolatedAsyncioTestCase")
        unittest.TestSuite([owner(method)]).run(result)
        if result.testsRun != 1:
            result.note("skipped", "the case was not run")
    except BaseException as error:
        result.problem = ("error", error)
    finish(emit, name, result.problem)


def result_class(unittest: Any) -> Any:
    """Return a TestResult that keeps the first problem of a case: an outcome with an exception or a reason."""

    class Result(unittest.TestResult):  # type: ignore[misc]
        problem: Any = None

        def note(self, outcome: str, problem: Any) -> None:
            if self.problem is None:
                self.problem = (outcome, problem)

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


def run_pytest(module: types.ModuleType, emit: Callable[..., None], check: Callable[[], None]) -> None:
    import os
    import tempfile

    import pytest

    skip, xfail, fail = pytest.skip.Exception, pytest.xfail.Exception, pytest.fail.Exception

    class Loaded(pytest.Module):
        def _getobj(self) -> types.ModuleType:
            return module

    class Plugin:
        problem: Any = None
        phases = 0

        def pytest_collect_file(self, file_path: Any, parent: Any) -> Any:
            return Loaded.from_parent(parent, path=file_path)

        def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
            self.phases += 1
            if call.excinfo is None:
                return
            error = call.excinfo.value
            if isinstance(error, (skip, xfail)) or item.get_closest_marker("xfail"):
                self.note("skipped", str(error))
            else:
                self.note("failed" if isinstance(error, (AssertionError, fail)) else "error", error)

        def note(self, outcome: str, problem: Any) -> None:
            if self.problem is None or self.problem[0] == "skipped":
                self.problem = (outcome, problem)

        @pytest.hookimpl(hookwrapper=True)
        def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
            owner = item.parent.name + "." if isinstance(item.parent, pytest.Class) else ""
            name = owner + item.name.partition("[")[0]
            self.problem, self.phases = None, 0
            emit("start", name)
            yield
            if self.problem is None and item.get_closest_marker("xfail"):
                self.note("skipped", "a failure was expected")
            if self.problem is None and self.phases != PHASES:
                self.note("error", "the case was not run to its end")
            finish(emit, name, self.problem)
            check()

    # pytest wants a file; one that looks like a module would be loaded a second time
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "program")
    open(path, "w").close()
    options = ["--noconftest", "--import-mode=importlib", "--rootdir=" + folder, "-c", os.devnull, "--capture=sys"]
    options += ["-p", "no:cacheprovider", "-p", "no:terminal", "-p", "no:faulthandler"]
    pytest.main([*options, path], plugins=[Plugin()])


class Guard:
    """Tells when the program changed what its own judgement depends on."""

    def __init__(self, emit: Callable[..., None], space: dict[str, Any]) -> None:
        self.emit = emit
        self.space = space
        self.told: set[str] = set()
        self.functions: list[Function] = []
        self.test_case: Any = None
        places: dict[str, Any] = {"builtins": builtins}
        for name in ("unittest", "unittest.case", "unittest.suite", "unittest.result", "pytest"):
            module = sys.modules.get(name)
            if module is not None:
                places[name] = module
                classes = vars(module).items() if name.startswith("unittest.") else ()
                places.update({"unittest." + key: value for key, value in classes if isinstance(value, type)})
        self.kept = [(name, place, dict(vars(place))) for name, place in places.items()]
        if "unittest" in sys.modules:
            self.test_case = sys.modules["unittest"].TestCase
            self.assertions = {key for key in dir(self.test_case) if callable(getattr(self.test_case, key))}

    def expect(self, defined: Iterable[Function]) -> None:
        """Say what has just been defined."""
        self.functions += defined

    def check(self) -> None:
        """Report each change, once."""
        for name, place, kept in self.kept:
            now = vars(place)
            for key in kept:
                if now.get(key, self) is not kept[key] and key not in HARMLESS:
                    self.tell("the program changed %s.%s" % (name, key))
            if len(now) != len(kept) and isinstance(place, type):
                for key in now:
                    if key not in kept and key.startswith("__"):
                        self.tell("the program changed %s.%s" % (name, key))
        for function in self.functions:
            if not function.check(self.space):
                self.tell("the program replaced its function " + function.name)
            if function.bound is not None:
                self.check_class(function)

    def check_class(self, function: Function) -> None:
        """Look for assertions that were put into a test class from outside."""
        owner = self.space.get(function.owner)
        if self.test_case is None or not isinstance(owner, type) or not issubclass(owner, self.test_case):
            return
        for key in vars(owner):
            if key in self.assertions and key not in (function.bound or ()) and not key.startswith("_"):
                self.tell("the program changed unittest.TestCase.%s, in %s" % (key, function.owner))

    def tell(self, message: str) -> None:
        if message not in self.told:
            self.told.add(message)
            self.emit("tamper", message=message)


class Function:
    """A function of the program, or a method: `owner` is its class, `bound` the names that the class's body binds."""

    def __init__(self, owner: str, node: Any, code: types.CodeType, decorated: bool, bound: Any) -> None:
        mangled = owner and node.name.startswith("__") and not node.name.endswith("__")
        self.key = "_" + owner.lstrip("_") + node.name if mangled else node.name
        self.name = owner + "." + node.name if owner else node.name
        self.owner = owner
        self.code = code
        self.decorated = decorated
        self.bound = bound
        self.seen = self.traceable = False
        self.value: Any = None

    def check(self, space: dict[str, Any]) -> bool:
        """Say whether the name still stands for what it did at the first call, which is after loading."""
        try:
            value = (vars(space[self.owner]) if self.owner else space).get(self.key)
        except (KeyError, TypeError):
            value = None
        has_code = self.has_code(value)
        if not self.seen:
            self.seen = True
            self.value = value
            self.traceable = has_code
            return has_code or self.decorated
        return value is self.value and has_code is self.traceable

    def has_code(self, value: Any) -> bool:
        """Say whether a value is the function of the source, or a decorator's work around it."""
        for _ in range(10):
            value = getattr(value, "__func__", value)
            if not isinstance(value, types.FunctionType):
                return False
            if value.__code__ is self.code or not self.decorated:
                break
            value = value.__dict__.get("__wrapped__")
        return value.__code__ is self.code


def functions(
    body: list[Any], code: types.CodeType, snippet: range, bound: list[str], owner: str = "", decorated: bool = False
) -> Iterator[Function]:
    """Yield the functions that a body defines outside of the snippet, where nothing else binds their names."""
    codes = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    for node in body:
        kind = type(node).__name__
        definition = kind in ("FunctionDef", "AsyncFunctionDef", "ClassDef")
        if not definition or node.lineno in snippet or bound.count(node.name) > 1:
            continue
        lines = [node.lineno] + [part.lineno for part in node.decorator_list]
        own = [each for each in codes if each.co_name == node.name and each.co_firstlineno in lines]
        wrapped = decorated or bool(node.decorator_list)
        if kind != "ClassDef":
            yield from (Function(owner, node, each, wrapped, set(bound) if owner else None) for each in own[:1])
        elif not owner:
            inner = [name for part in node.body if part.lineno not in snippet for name in bindings(part)]
            for each in own[:1]:
                yield from functions(node.body, each, snippet, inner, node.name, wrapped)


def bindings(node: Any) -> Iterator[str]:
    """Yield the names that a statement binds in the scope it stands in."""
    pending = [node]
    while pending:
        part = pending.pop()
        kind = type(part).__name__
        if kind in ("FunctionDef", "AsyncFunctionDef", "ClassDef"):
            yield part.name
        elif kind == "alias":
            yield (part.asname or part.name).partition(".")[0]
        elif kind == "Name":
            if type(part.ctx).__name__ != "Load":
                yield part.id
        elif kind != "Lambda":
            values = [getattr(part, field, None) for field in part._fields]
            nested = [item for value in values if isinstance(value, list) for item in value]
            pending += [item for item in values + nested if hasattr(item, "_fields")]


class Source:
    """Gives the program's text to whoever asks for it by PEP 302: tracebacks and inspect."""

    def __init__(self, text: str) -> None:
        self.text = text

    def get_source(self, _name: str) -> str:
        return self.text


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
        if frames or code.co_filename != OWN_NAME:
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
