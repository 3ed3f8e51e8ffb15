"""Runs the cases of a Python program and reports each; sent to the sandbox as source.

`main(job, emit)` is what the supervisor's child calls. What a program could change is kept here beforehand and compared
after loading and after each case: built-in names, unittest's classes, and the code of the program's own functions. Only
what stands in the snippet's lines may do as it likes.
"""

import builtins
import sys
import types

NAME = "program.py"
MODULE = "test_program"
MAX_MESSAGE = 2000
MAX_FRAMES = 40


def main(job, emit):
    module = types.ModuleType(MODULE)
    module.__file__ = NAME
    sys.modules[MODULE] = module
    program = Program(job, emit, module)
    if program.load():
        program.guard.check()
        program.run()
    program.guard.check()


class Program:
    def __init__(self, job, emit, module):
        self.job = job
        self.report = emit
        self.module = module
        self.guard = Guard(emit)

    def load(self):
        job = self.job
        try:
            code = compile(job.program, NAME, "exec", dont_inherit=True)
            remember_source(job.program)
            needs_unittest = "unittest" in job.program
            if needs_unittest:
                import unittest  # noqa: F401 - before the program can replace it
            snippet = range(int(job.options.get("first_line", 0)), int(job.options.get("last_line", -1)) + 1)
            self.guard.watch(self.module, code, job.program, snippet, needs_unittest)
            exec(code, self.module.__dict__)
        except BaseException as error:
            tell(self.report, "load", "", error)
            return False
        return True

    def run(self):
        if self.job.options.get("pytest") == "1":
            run_pytest(self.job, self.module, self.report, self.guard)
            return
        # all of them before any runs: a case may not put another in a later one's place
        cases = [(name, find(self.module, name)) for name in self.job.cases]
        for name, case in cases:
            if case is not None:
                run_case(name, case, self.report)
                self.guard.check()


def find(module, name):
    """Return what runs a case: a function, or a class and the name of its method."""
    owner, _, method = name.rpartition(".")
    if not owner:
        case = module.__dict__.get(name)
        return case if isinstance(case, types.FunctionType) else None
    case = module.__dict__.get(owner)
    if isinstance(case, type) and isinstance(getattr(case, method, None), types.FunctionType):
        return case, method
    return None


def run_case(name, case, emit):
    emit("start", name)
    if isinstance(case, tuple):
        run_method(name, case[0], case[1], emit)
        return
    try:
        result = case()
        if isinstance(result, types.CoroutineType):
            import asyncio

            asyncio.run(result)
    except BaseException as error:
        tell(emit, "case", name, error)
    else:
        emit("case", name, "passed")


def run_method(name, owner, method, emit):
    import unittest

    class Result(unittest.TestResult):
        problem = None

        def addError(self, test, err):
            super().addError(test, err)
            self.problem = self.problem or ("error", err[1])

        def addFailure(self, test, err):
            super().addFailure(test, err)
            self.problem = self.problem or ("failed", err[1])

        def addSubTest(self, test, subtest, err):
            super().addSubTest(test, subtest, err)
            if err is not None:
                failed = issubclass(err[0], test.failureException)
                self.problem = self.problem or ("failed" if failed else "error", err[1])

        def addSkip(self, test, reason):
            super().addSkip(test, reason)
            self.problem = self.problem or ("skipped", reason)

        def addExpectedFailure(self, test, err):
            super().addExpectedFailure(test, err)
            self.problem = self.problem or ("skipped", "an expected failure shows nothing")

        def addUnexpectedSuccess(self, test):
            super().addUnexpectedSuccess(test)
            self.problem = self.problem or ("skipped", "an expected failure did not fail")

    result = Result()
    try:
        unittest.TestSuite([owner(method)]).run(result)
    except BaseException as error:
        result.problem = ("error", error)
    if result.problem is None and result.testsRun != 1:
        result.problem = ("skipped", "the case was not run")
    if result.problem is None:
        emit("case", name, "passed")
    elif isinstance(result.problem[1], BaseException):
        tell(emit, "case", name, result.problem[1], result.problem[0])
    else:
        emit("case", name, result.problem[0], "", str(result.problem[1])[:MAX_MESSAGE])


def run_pytest(job, module, emit, guard):
    import os

    try:
        import pytest
    except ImportError as error:
        tell(emit, "load", "", error)
        return

    class Loaded(pytest.Module):
        def _getobj(self):
            return module

    class Plugin:
        def pytest_collect_file(self, file_path, parent):
            if file_path.name == NAME:
                return Loaded.from_parent(parent, path=file_path)
            return None

        def pytest_runtest_makereport(self, item, call):
            if call.excinfo is not None:
                item.raised = call.excinfo.value

        @pytest.hookimpl(hookwrapper=True)
        def pytest_runtest_protocol(self, item):
            parent = item.parent.name + "." if isinstance(item.parent, pytest.Class) else ""
            name = parent + item.name.split("[")[0]
            emit("start", name)
            yield
            raised = getattr(item, "raised", None)
            if raised is None:
                emit("case", name, "passed")
            elif isinstance(raised, pytest.skip.Exception):
                emit("case", name, "skipped", "", str(raised)[:MAX_MESSAGE])
            elif item.get_closest_marker("xfail"):
                emit("case", name, "skipped", "", "an expected failure shows nothing")
            else:
                tell(emit, "case", name, raised)
            guard.check()

    with open(NAME, "w", encoding="utf-8", errors="surrogatepass") as file:
        file.write(job.program)
    arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:terminal", "--noconftest", "--rootdir=" + os.getcwd()]
    try:
        pytest.main([*arguments, "-c", os.devnull, "--import-mode=importlib", NAME], plugins=[Plugin()])
    except BaseException as error:
        tell(emit, "load", "", error)


class Guard:
    """Tells when the program changed what its own judgement depends on."""

    def __init__(self, emit):
        self.emit = emit
        self.kept = {}
        self.functions = {}
        self.module = None
        self.source = ""

    def watch(self, module, code, source, snippet, with_unittest):
        self.module = module
        self.source = source
        places = {"builtins": builtins}
        if with_unittest:
            import unittest
            import unittest.case

            places["unittest"] = unittest
            for name in ("TestCase", "TestResult", "TestSuite"):
                places["unittest." + name] = getattr(unittest, name)
        for name, place in places.items():
            self.kept[name] = (place, dict(place.__dict__))
        self.functions = dict(functions(code, snippet))

    def check(self):
        for name, (place, kept) in self.kept.items():
            now = place.__dict__
            for key, value in kept.items():
                if now.get(key, self) is not value and key not in ("_", "__warningregistry__"):
                    self.emit("tamper", message="the program changed %s.%s" % (name, key))
        for name, code in self.functions.items():
            if code_of(self.module.__dict__, name) is not code and not decorated(self.source, name):
                self.emit("tamper", message="the program replaced its function %s" % name)


def functions(code, snippet):
    """Yield the name and code of each function and method of the program outside of the snippet's lines.

    A name that is defined twice is left out: which of the two holds is the program's own affair.
    """
    seen = {}
    for const in code.co_consts:
        if isinstance(const, types.CodeType) and const.co_firstlineno not in snippet:
            found = [const]
            if is_class_body(const):
                found = [
                    c for c in const.co_consts if isinstance(c, types.CodeType) and c.co_firstlineno not in snippet
                ]
            for each in found:
                name = each.co_name if each is const else const.co_name + "." + each.co_name
                if not each.co_name.startswith("<"):
                    seen.setdefault(name, []).append(each)
    return [(name, codes[0]) for name, codes in seen.items() if len(codes) == 1]


def decorated(source, name):
    """Return whether a function or method has decorators, which may make anything of it."""
    import ast

    owner, _, method = name.rpartition(".")
    body = ast.parse(source).body
    if owner:
        body = [part for node in body if isinstance(node, ast.ClassDef) and node.name == owner for part in node.body]
    found = [node for node in body if getattr(node, "name", None) == method]
    return bool(found and found[0].decorator_list)


def is_class_body(code):
    return "__module__" in code.co_names and "__qualname__" in code.co_names and not code.co_argcount


def code_of(space, name):
    """Return the code of what a name of the module leads to, None when it has none."""
    owner, _, method = name.rpartition(".")
    found = space.get(name) if not owner else getattr(space.get(owner), "__dict__", {}).get(method)
    found = getattr(found, "__func__", found)
    while hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    return getattr(found, "__code__", None)


def remember_source(source):
    import linecache

    lines = [line + "\n" for line in source.split("\n")]
    linecache.cache[NAME] = (len(source), None, lines, NAME)


def tell(emit, kind, name, error, outcome=None):
    """Report an exception with the innermost part of its traceback."""
    frames, traceback = [], error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        frames.append((code.co_filename, traceback.tb_lineno, code.co_name))
        traceback = traceback.tb_next
    if isinstance(error, SyntaxError) and error.filename == NAME:
        frames.append((NAME, error.lineno or 0, ""))
    if outcome is None:
        outcome = "failed" if isinstance(error, AssertionError) else "error"
    if kind == "load":
        outcome = "error"
    emit(kind, name, outcome, type(error).__name__, message_of(error)[:MAX_MESSAGE], frames[-MAX_FRAMES:])


def message_of(error):
    try:
        return str(error)
    except BaseException as other:
        return "<no message: str() raised %s>" % type(other).__name__
