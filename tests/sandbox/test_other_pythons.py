"""Sandboxes run the requested Python version and install no wheels newer than the cutoff."""

from __future__ import annotations

import secrets
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

from agent.errors import DependencyUnavailable, InterpreterUnavailable
from agent.languages.python.language import PythonLanguage
from agent.sandbox import interpreter
from agent.sandbox.base import SandboxBackend
from agent.sandbox.bwrap.backend import BwrapBackend
from agent.sandbox.dependencies.environments import DependencyPolicy
from agent.sandbox.docker.backend import DockerBackend
from agent.sandbox.docker.images import find_image
from agent.types import Cause
from tests.pythons import build_python_image, copy_python, remove_image
from tests.sandbox.conftest import BACKENDS, LIMITS, VOLUME, make_job, passes, require_backend, run_once
from tests.sandbox.wheelhouse import serve_project, use_index

HERE = "{}.{}".format(*sys.version_info)
OTHER = "3.9"
CUTOFF = datetime(2017, 1, 1, tzinfo=UTC)
MakeBackend = Callable[..., SandboxBackend]
StartBackend = Callable[..., Awaitable[SandboxBackend]]


@pytest.fixture(scope="module")
def other_python() -> Iterator[Path]:
    """A folder with another Python, accessible to every user."""
    folder = Path("/tmp") / f"agent-python-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o755)
    try:
        yield copy_python(OTHER, folder)
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def image(other_python: Path) -> Iterator[str]:
    """An image with another Python."""
    require_backend("docker")
    tag = f"agent-tests:{secrets.token_hex(4)}"
    build_python_image(OTHER, other_python, tag)
    yield tag
    remove_image(tag)


@pytest.fixture(params=BACKENDS)
def make_backend(request: pytest.FixtureRequest, open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> MakeBackend:
    """A function, for each kind of backend, that creates a backend which can run another Python."""
    require_backend(request.param)
    monkeypatch.setenv("XDG_CACHE_HOME", str(open_folder / "cache"))

    def make(python: str | None = None, policy: DependencyPolicy = DependencyPolicy()) -> SandboxBackend:  # noqa: B008
        if request.param == "docker":
            images = {OTHER: request.getfixturevalue("image")} if python else {}
            return DockerBackend(LIMITS, volume=VOLUME, python=python, images=images, dependency_policy=policy, pool=0)
        if python:
            folder = request.getfixturevalue("other_python")
            monkeypatch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")
        return BwrapBackend(LIMITS, store=open_folder / "store", python=python, dependency_policy=policy, pool=0)

    return make


@pytest.fixture
async def start_backend(make_backend: MakeBackend) -> AsyncIterator[StartBackend]:
    """A function that starts backends, which are closed at the end."""
    backends: list[SandboxBackend] = []

    async def start_one(**parts: Any) -> SandboxBackend:
        backends.append(make_backend(**parts))
        await backends[-1].start(lambda _line: None)
        return backends[-1]

    yield start_one
    for backend in backends:
        await backend.close()


IS_OTHER = "import sys\n\n\ndef test_a():\n    assert sys.version_info[:2] == (3, 9)\n"


SPAWNS = """import multiprocessing, subprocess, sys
def f(x): return x * 2
def test_a():
    subprocess.run([sys.executable, "-c", "import tinything, test_program"], check=True)
    assert multiprocessing.get_context("spawn").Pool(2).map(f, [1, 2]) == [2, 4]
"""


@pytest.mark.usefixtures("dated_index")
@pytest.mark.parametrize("python", [None, pytest.param(OTHER, marks=pytest.mark.pyenv)])
async def test_child_processes_import_the_program_and_its_packages(
    start_backend: StartBackend, python: str | None
) -> None:
    backend = await start_backend(python=python)
    environment = await backend.environments.build(["tinything"])
    assert passes(await run_once(backend, make_job(SPAWNS, timeout=30), environment.key), "test_a")


@pytest.mark.pyenv
async def test_programs_run_on_the_requested_python(start_backend: StartBackend) -> None:
    backend = await start_backend(python=OTHER)
    assert backend.describe()["python"].startswith(f"{OTHER}.")
    assert passes(await run_once(backend, make_job(IS_OTHER)), "test_a")


@pytest.mark.pyenv
@pytest.mark.parametrize(
    "code", ["def f():\n    match 1:\n        case _:\n            return 1", "import tomllib\ndef f():\n    return 1"]
)
async def test_what_an_older_python_lacks_is_not_the_fault_of_the_snippet(
    start_backend: StartBackend, code: str
) -> None:
    backend, python = await start_backend(python=OTHER), PythonLanguage()
    program = python.insert("# <candidate>\ndef test_a():\n    assert f() == 1\n", python.inspect(code))
    result = await run_once(backend, python.job(program, environment=None, timeout=5.0))
    assert python.report(program, result).cause is Cause.DEPENDENCY


@pytest.fixture
def dated_index(httpserver: HTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HTTPServer:
    """An index with the upload times of a project's two versions."""
    uploads = {"1.0": "2016-12-31T23:59:59Z", "2.0": "2017-01-01T00:00:00Z"}
    serve_project(httpserver, tmp_path, "tinything", uploads)
    use_index(monkeypatch, f"http://127.0.0.1:{httpserver.port}/simple")
    return httpserver


@pytest.mark.usefixtures("dated_index")
@pytest.mark.parametrize("python", [None, pytest.param(OTHER, marks=pytest.mark.pyenv)])
async def test_later_uploads_are_not_installed(start_backend: StartBackend, python: str | None) -> None:
    backend = await start_backend(python=python, policy=DependencyPolicy(exclude_newer=CUTOFF))
    assert (await backend.environments.build(["tinything"])).installed == ("tinything==1.0",)
    with pytest.raises(DependencyUnavailable, match=r"tinything"):
        await backend.environments.build(["tinything>=2"])


async def test_cached_resolutions_depend_on_the_cutoff(start_backend: StartBackend, dated_index: HTTPServer) -> None:
    dated = await start_backend(policy=DependencyPolicy(exclude_newer=CUTOFF))
    assert (await dated.environments.build(["tinything"])).installed == ("tinything==1.0",)
    undated = await start_backend()
    assert (await undated.environments.build(["tinything"])).installed == ("tinything==2.0",)
    requests = len(dated_index.log)
    later = await start_backend(policy=DependencyPolicy(exclude_newer=CUTOFF))
    assert (await later.environments.build(["tinything"])).installed == ("tinything==1.0",)
    assert len(dated_index.log) == requests


async def test_a_missing_python_is_reported_with_the_available_ones(make_backend: MakeBackend) -> None:
    backend = make_backend()
    assert isinstance(backend, BwrapBackend | DockerBackend)
    backend._python = "3.77"
    with pytest.raises(InterpreterUnavailable, match=rf"3\.77.* {HERE}"):
        await backend.start(print)


@pytest.mark.docker
async def test_an_image_with_the_wrong_python_is_refused() -> None:
    require_backend("docker")
    backend = DockerBackend(image="python:3.11-slim-bookworm", python="3.12")
    with pytest.raises(InterpreterUnavailable, match=r"3\.11.*3\.12"):
        await backend.start(print)


class Images:
    """An engine that has these images."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def find_image_id(self, name: str) -> str | None:
        return name if name in self.names else None

    def list_image_names(self) -> list[str]:
        return list(self.names)


def test_a_slim_official_image_comes_first() -> None:
    engine = Images("python:3.9-alpine", "python:3.9", "python:3.9-slim", "python:3.10-slim", "ubuntu:3.9")
    assert find_image(engine, "3.9", {}) == "python:3.9-slim"
    assert find_image(Images("python:3.9-alpine", "python:3.9.18"), "3.9", {}) == "python:3.9.18"
    assert find_image(Images("docker.io/library/python:3.9-slim"), "3.9", {}).endswith("python:3.9-slim")
    assert find_image(Images("mine:1", "python:3.9"), "3.9", {"3.9": "mine:1"}) == "mine:1"


def test_an_image_is_never_pulled() -> None:
    with pytest.raises(InterpreterUnavailable, match=r"3\.9, 3\.10.*docker pull python:3\.12"):
        find_image(Images("python:3.10-slim", "python:3.9"), "3.12", {})
    with pytest.raises(InterpreterUnavailable, match=r"mine:1.*3\.9"):
        find_image(Images("python:3.9"), "3.9", {"3.9": "mine:1"})


def test_pythons_of_version_managers_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = ("pyenv/versions/3.9.1/bin", "uv/cpython-3.10.2-linux/bin", "path")
    for folder, name in zip(folders, ("python3.9", "python3.10", "python3.8"), strict=True):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).write_bytes(b"\x7fELF")
    (tmp_path / "path" / "python3.7").write_text("#!/bin/sh\n")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    names = {path.name for path in interpreter._iterate_pythons() if path.is_relative_to(tmp_path)}
    assert names == {"python3.8", "python3.9", "python3.10"}
    assert [path.parent.name for path in interpreter._list_candidates("3.8") if path.is_relative_to(tmp_path)] == [
        "path"
    ]
