"""One life of each kind: a bare process, the plainest container, and a sandbox of each backend."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from agent.sandbox.base import SandboxBackend, SandboxJob
from agent.sandbox.inside import read_source
from agent.sandbox.interpreter import find_interpreter

Life = Callable[[], Awaitable[float]]
"""Lives once and returns the seconds of the critical path: from the wish to the result."""

TRIVIAL = SandboxJob(read_source("python_harness"), "def test_sum():\n    assert 1 + 1 == 2\n", ("test_sum",))


async def bare() -> float:
    """Run `python3 -c pass` on the host."""
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(_PYTHON, "-c", "pass")
    assert await process.wait() == 0
    return time.perf_counter() - started


def sandboxed(backend: SandboxBackend) -> Life:
    """Return a life that acquires a sandbox, runs a trivial program and releases it; the release is not counted."""

    async def live() -> float:
        started = time.perf_counter()
        sandbox = await backend.acquire()
        result = await sandbox.run(TRIVIAL)
        seconds = time.perf_counter() - started
        assert result.clean, result
        await sandbox.release()
        return seconds

    return live


class NaiveDocker(AbstractAsyncContextManager["NaiveDocker"]):
    """What a first attempt with docker-py does for each program: create, start, wait, remove."""

    def __init__(self, image: str) -> None:
        import docker

        self._image = image
        self._client = docker.from_env(max_pool_size=64)
        self._threads = ThreadPoolExecutor(32)

    async def live(self) -> float:
        """Run `python3 -c pass` in a container of its own; its removal counts, as it is waited for."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._live)

    def _live(self) -> float:
        started = time.perf_counter()
        container = self._client.containers.create(self._image, ["python3", "-c", "pass"], network_mode="none")
        container.start()
        assert container.wait()["StatusCode"] == 0
        container.remove(force=True)
        return time.perf_counter() - started

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown()
        self._client.close()


_PYTHON = find_interpreter().path
