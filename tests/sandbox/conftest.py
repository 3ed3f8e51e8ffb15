"""One backend of each kind for a whole session, and programs that run in it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from agent.sandbox.base import RunResult, Sandbox, SandboxBackend, SandboxJob, SandboxLimits
from agent.sandbox.inside import source
from tests.conftest import lacking, required

BACKENDS = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("docker", "bwrap")]
LIMITS = SandboxLimits(memory=256 << 20, processes=64, files=32 << 20, output=16 << 10)


VOLUME = f"test-driven-annotator-tests-{os.getpid()}-shared"


@cache
def own_store() -> Path:
    """Make a store for this process's tests, in folders that every user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="agent-test-store-"))
    folder.chmod(0o755)
    return folder


@pytest.fixture(scope="session", autouse=True)
def nothing_stays() -> Iterator[None]:
    """Remove the stores of this process's tests at its end."""
    yield
    if own_store.cache_info().currsize:
        shutil.rmtree(own_store(), ignore_errors=True)
    if not lacking("docker"):
        remove_volume(VOLUME)


def remove_volume(name: str) -> None:
    """Remove a volume of the engine, if it is there."""
    import docker

    client = docker.from_env()
    for left in client.volumes.list(filters={"name": name}):
        left.remove(force=True)
    client.close()


def need(name: str) -> None:
    """Skip the test where this machine has no such backend."""
    if why := lacking(name):
        (pytest.fail if name in required() else pytest.skip)(f"needs {name}: {why}")


async def start(name: str, limits: SandboxLimits = LIMITS) -> SandboxBackend:
    """Start a backend, or skip the test where this machine has none."""
    need(name)
    backend: SandboxBackend
    if name == "docker":
        from agent.sandbox.docker.backend import DockerBackend

        backend = DockerBackend(limits, volume=VOLUME)
    else:
        from agent.sandbox.bwrap.backend import BwrapBackend

        backend = BwrapBackend(limits, store=own_store())
    await backend.start(lambda _line: None)
    return backend


@pytest.fixture(scope="session", params=BACKENDS)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[SandboxBackend]:
    """Each backend in turn."""
    started = await start(request.param)
    yield started
    await started.close()


@pytest.fixture
async def sandbox(backend: SandboxBackend) -> AsyncIterator[Sandbox]:
    """A fresh sandbox."""
    acquired = await backend.acquire()
    yield acquired
    await acquired.release()


@pytest.fixture(scope="module")
async def reused(backend: SandboxBackend) -> AsyncIterator[Sandbox]:
    """One sandbox for a module's many runs that leave no files."""
    acquired = await backend.acquire()
    yield acquired
    await acquired.release()


def job(program: str, cases: Sequence[str] = ("test_a",), timeout: float = 5.0, **options: str) -> SandboxJob:
    """Return a job for the Python harness."""
    return SandboxJob(source("python_harness"), program, tuple(cases), options, None, timeout)


def statements(body: str, timeout: float = 5.0) -> SandboxJob:
    """Return a job whose one case runs these statements."""
    indented = "".join(f"    {line}\n" for line in body.strip().split("\n"))
    return job(f"def test_a():\n{indented}", timeout=timeout)


def outcomes(result: RunResult) -> dict[str, str]:
    """Return how each case ended."""
    return {record.name: record.outcome for record in result.records if record.kind == "case"}


def passes(result: RunResult, *cases: str) -> bool:
    """Return whether a run would count as passed: clean, with every case started and passed."""
    started = [record.name for record in result.records if record.kind == "start"]
    return (
        result.clean
        and set(started) == set(cases) == set(outcomes(result))
        and set(outcomes(result).values()) == {"passed"}
    )
