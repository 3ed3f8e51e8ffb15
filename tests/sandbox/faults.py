"""A Docker backend that is disturbed while it runs programs, and checks of the result."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from agent.sandbox.base import SandboxLimits
from agent.sandbox.docker.backend import DockerBackend
from agent.sandbox.docker.engine import DockerEngine
from agent.sandbox.owner import PREFIX
from tests.sandbox.conftest import remove_volume
from tests.sandbox.crowd import RUNS, Crowd
from tests.sandbox.leftovers import list_containers, take_inventory, wait_for_inventory

LIMITS = SandboxLimits(memory=128 << 20, processes=64, files=256 << 20, output=16 << 10)
VOLUME = f"{PREFIX}-tests-faults-{os.getpid()}"


@asynccontextmanager
async def run_backend(
    connect: Callable[[], DockerEngine] = DockerEngine.connect, *, pool: int = 4
) -> AsyncIterator[DockerBackend]:
    """Start a backend as a run does, and check at the end that it leaks nothing."""
    before, lines = await asyncio.to_thread(list_containers), list[str]()
    await (warm := DockerBackend(LIMITS, volume=VOLUME)).start(print)
    await warm.close()
    inventory = take_inventory()
    backend = DockerBackend(LIMITS, volume=VOLUME, connect=connect, pool=pool)
    await backend.start(lines.append)
    try:
        yield backend
    finally:
        await backend.close()
        await asyncio.to_thread(remove_volume, VOLUME)
    assert [line for line in lines if line.startswith("Container ")] == []
    assert await asyncio.to_thread(list_containers) <= before
    assert await wait_for_inventory(inventory) == inventory


async def disturb(crowd: Crowd, backend: DockerBackend, disturbance: Coroutine[Any, Any, None]) -> None:
    """Run a crowd and a disturbance concurrently until both have ended."""
    task = asyncio.create_task(disturbance)
    try:
        await crowd.run_programs(backend, enough=task.done)
        assert task.done(), "the programs ended before the disturbance"
        await task
    finally:
        task.cancel()


def assert_complete(crowd: Crowd) -> None:
    """Assert that each program ended as expected."""
    assert crowd.find_wrong_endings() == {}
    assert crowd.errors == {}
    assert len(crowd.endings) == crowd.started_count >= RUNS
