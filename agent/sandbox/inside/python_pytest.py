"""Runs a program's cases with pytest. This file is the fourth part of the Python harness."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterator
    from typing import Any

    from agent.sandbox.inside.python_harness import FOLDER
    from agent.sandbox.inside.python_reports import report_case

PHASES = 3
"""The number of phases that pytest reports per case: set-up, call and tear-down."""
PLUGINS = (
    ("asyncio", "pytest_asyncio.plugin"),
    ("anyio", "anyio.pytest_plugin"),
    ("trio", "pytest_trio.plugin"),
    ("aiohttp", "pytest_aiohttp.plugin"),
    ("hypothesispytest", "_hypothesis_pytestplugin"),
    ("pytest_mock", "pytest_mock"),
    ("requests_mock", "requests_mock.contrib._pytest_plugin"),
)
"""The names and modules of the pytest plugins that programs may use. Other plugins are not loaded."""


def make_pytest_runner(module: types.ModuleType) -> Callable[..., None]:
    """Return the function that runs pytest on the program's module."""
    import os

    import pytest

    run, environ, reporter = pytest.main, os.environ, Reporter()
    make_folder, open_file, close = os.mkdir, os.open, os.close
    plugin = make_plugin(pytest, module, load_plugins(), reporter)
    # pytest needs a file, but it would load a file with the .py suffix as a second module
    folder = FOLDER + "-pytest"
    path = folder + "/program"
    options = ["--noconftest", "--import-mode=importlib", "--rootdir=" + folder, "-c", os.devnull, "--capture=sys"]
    options += ["-p", "no:cacheprovider", "-p", "no:terminal", "-p", "no:faulthandler", path]

    def run_pytest(emit: Callable[..., None], check: Callable[[], None]) -> None:
        # otherwise, pytest would load plugins that the program names in these variables
        os.environ = environ  # noqa: B003
        for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
            environ.pop(name, None)
        environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        reporter.emit, reporter.check = emit, check
        make_folder(folder)
        close(open_file(path, os.O_CREAT))
        run(options, plugins=[plugin])

    return run_pytest


class Reporter:
    """Reports the outcome of each case."""

    emit: Callable[..., None]
    check: Callable[[], None]

    def start_case(self, item: Any, in_class: bool) -> None:
        owner = item.parent.name + "." if in_class else ""
        self.name = owner + item.name.partition("[")[0]
        self.function = find_function(item)
        self.problem: Any = None
        self.phases = 0
        self.emit("start", self.name)

    def set_problem(self, outcome: str, problem: Any) -> None:
        if self.problem is None or self.problem[0] == "skipped":
            self.problem = (outcome, problem)

    def end_case(self, item: Any) -> None:
        if self.problem is None and item.get_closest_marker("xfail"):
            self.set_problem("skipped", "the test passed but is marked as xfail")
        if self.problem is None and self.phases != PHASES:
            self.set_problem("error", "the case did not run to completion")
        report_case(self.emit, self.name, self.problem)
        self.check()


def make_plugin(pytest: Any, module: types.ModuleType, plugins: list[tuple[str, Any]], reporter: Reporter) -> Any:
    """Return a pytest plugin that provides the program's module and reports the outcomes of its cases.

    Programs can access the plugin, so it has no attributes that report.
    """
    skip, xfail, fail = pytest.skip.Exception, pytest.xfail.Exception, pytest.fail.Exception
    group = pytest.Class

    class Loaded(pytest.Module):  # type: ignore[misc]
        def _getobj(self) -> types.ModuleType:
            return module

    class Plugin:
        def pytest_addoption(self, pluginmanager: Any) -> None:
            for name, plugin in plugins:
                pluginmanager.register(plugin, name)

        def pytest_collect_file(self, file_path: Any, parent: Any) -> Any:
            return Loaded.from_parent(parent, path=file_path)

        def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
            reporter.phases += 1
            if call.excinfo is None:
                return
            error = call.excinfo.value
            if isinstance(error, (skip, xfail)) or item.get_closest_marker("xfail"):
                reporter.set_problem("skipped", str(error))
            else:
                reporter.set_problem("failed" if isinstance(error, (AssertionError, fail)) else "error", error)

        @pytest.hookimpl(tryfirst=True)  # type: ignore[untyped-decorator]
        def pytest_runtest_call(self, item: Any) -> None:
            if find_function(item) is not reporter.function or "runtest" in vars(item):
                reporter.set_problem("error", "the test was replaced")

        @pytest.hookimpl(hookwrapper=True)  # type: ignore[untyped-decorator]
        def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
            reporter.start_case(item, isinstance(item.parent, group))
            yield
            reporter.end_case(item)

    return Plugin()


def load_plugins() -> list[tuple[str, Any]]:
    """Import pytest's plugins before the program can replace them."""
    from importlib import import_module

    from _pytest.config import default_plugins

    for name in default_plugins:
        import_module("_pytest." + name)
    plugins = []
    for name, module in PLUGINS:
        try:
            plugins.append((name, import_module(module)))
        except ImportError:
            continue
    return plugins


def find_function(item: Any) -> Any:
    """Return the function that a pytest item runs."""
    return getattr(getattr(item, "obj", None), "__func__", getattr(item, "obj", None))
