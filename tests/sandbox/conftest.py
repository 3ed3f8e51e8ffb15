"""Backends shared by the tests of a session, and jobs to run in them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from agent.sandbox.base import RunResult, Sandbox, SandboxBackend, SandboxJob, SandboxLimits
from agent.sandbox.inside import read_source
from tests.conftest import explain_missing, list_required

BACKENDS = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("docker", "bwrap")]
LIMITS = SandboxLimits(memory=256 << 20, processes=64, files=32 << 20, output=16 << 10)


VOLUME = f"test-driven-annotator-tests-{os.getpid()}-shared"


@cache
def create_store() -> Path:
    """Create the store of this process's tests, accessible to every user."""
    folder = Path(tempfile.mkdtemp(prefix="agent-test-store-"))
    folder.chmod(0o755)
    return folder


@pytest.fixture(scope="session", autouse=True)
def remove_stores() -> Iterator[None]:
    """Remove the stores of this process's tests at the end."""
    yield
    if create_store.cache_info().currsize:
        shutil.rmtree(create_store(), ignore_errors=True)
    if not explain_missing("docker"):
        remove_volume(VOLUME)


def remove_volume(name: str) -> None:
    """Remove a volume of the engine if it exists."""
    import docker

    client = docker.from_env()
    for volume in client.volumes.list(filters={"name": name}):
        volume.remove(force=True)
    client.close()


def require_backend(name: str) -> None:
    """Skip the test if this machine lacks the backend."""
    if reason := explain_missing(name):
        (pytest.fail if name in list_required() else pytest.skip)(f"needs {name}: {reason}")


async def start(name: str, limits: SandboxLimits = LIMITS) -> SandboxBackend:
    """Start a backend, or skip the test if this machine lacks it."""
    require_backend(name)
    backend: SandboxBackend
    if name == "docker":
        from agent.sandbox.docker.backend import DockerBackend

        backend = DockerBackend(limits, volume=VOLUME)
    else:
        from agent.sandbox.bwrap.backend import BwrapBackend

        backend = BwrapBackend(limits, store=create_store())
    await backend.start(lambda _line: None)
    return backend


@pytest.fixture(scope="session", params=BACKENDS)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[SandboxBackend]:
    """A started backend of each kind."""
    instance = await start(request.param)
    yield instance
    await instance.close()


@pytest.fixture
async def sandbox(backend: SandboxBackend) -> AsyncIterator[Sandbox]:
    """A fresh sandbox."""
    acquired = await backend.acquire()
    yield acquired
    await acquired.release()


@pytest.fixture(scope="module")
async def shared_sandbox(backend: SandboxBackend) -> AsyncIterator[Sandbox]:
    """A sandbox shared by a module's runs, which must leave no files."""
    acquired = await backend.acquire()
    yield acquired
    await acquired.release()


async def run_once(backend: SandboxBackend, job: SandboxJob, environment: str | None = None) -> RunResult:
    """Run a job in a sandbox of its own, with an environment if one is passed."""
    sandbox = await backend.acquire()
    try:
        return await sandbox.run(job if environment is None else replace(job, environment=environment))
    finally:
        await sandbox.release()


def make_job(program: str, cases: Sequence[str] = ("test_a",), timeout: float = 5.0, **options: str) -> SandboxJob:
    """Return a job for the Python harness."""
    return SandboxJob(read_source("python_harness"), program, tuple(cases), options, None, timeout)


def make_test_job(body: str, timeout: float = 5.0) -> SandboxJob:
    """Return a job with one case that runs these statements."""
    indented = "".join(f"    {line}\n" for line in body.strip().split("\n"))
    return make_job(f"def test_a():\n{indented}", timeout=timeout)


def read_outcomes(result: RunResult) -> dict[str, str]:
    """Return the outcome of each case."""
    return {record.name: record.outcome for record in result.records if record.kind == "case"}


def passes(result: RunResult, *cases: str) -> bool:
    """Return whether a run would count as passed: clean, with every case started and passed."""
    started = [record.name for record in result.records if record.kind == "start"]
    return (
        result.clean
        and set(started) == set(cases) == set(read_outcomes(result))
        and set(read_outcomes(result).values()) == {"passed"}
    )
