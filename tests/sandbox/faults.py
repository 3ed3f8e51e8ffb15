"""A Docker backend while something around it breaks, and what must be so afterwards."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import docker

from agent.sandbox.base import SandboxLimits
from agent.sandbox.docker.backend import DockerBackend
from agent.sandbox.docker.engine import DockerEngine
from agent.sandbox.owner import PREFIX
from tests.sandbox.crowd import RUNS, Crowd
from tests.sandbox.leftovers import comes_to, containers, held

LIMITS = SandboxLimits(memory=128 << 20, processes=64, files=256 << 20, output=16 << 10)
VOLUME = f"{PREFIX}-tests-faults-{os.getpid()}"


@asynccontextmanager
async def started(
    connect: Callable[[], DockerEngine] = DockerEngine.connect, *, pool: int = 4
) -> AsyncIterator[DockerBackend]:
    """Give a backend as the tool has it, and see that nothing is left of it."""
    before, told = await asyncio.to_thread(containers), list[str]()
    await (warm := DockerBackend(LIMITS, volume=VOLUME)).start(print)
    await warm.close()
    holding = held()
    backend = DockerBackend(LIMITS, volume=VOLUME, connect=connect, pool=pool)
    await backend.start(told.append)
    try:
        yield backend
    finally:
        await backend.close()
        await asyncio.to_thread(_remove_volume)
    assert [line for line in told if "was not removed" in line] == []
    assert await asyncio.to_thread(containers) <= before
    assert await comes_to(holding) == holding


def _remove_volume() -> None:
    client = docker.from_env()
    client.api.remove_volume(VOLUME, force=True)
    client.close()


async def disturbed(crowd: Crowd, backend: DockerBackend, disturbance: Coroutine[Any, Any, None]) -> None:
    """Let a crowd work while something disturbs it, until both have come to their end."""
    disturbing = asyncio.create_task(disturbance)
    try:
        await crowd.work(backend, enough=disturbing.done)
        assert disturbing.done(), "so many programs ended before they were disturbed enough"
        await disturbing
    finally:
        disturbing.cancel()


def whole(crowd: Crowd) -> None:
    """Demand that each program ended, and ended as it should."""
    assert crowd.wrong() == {}
    assert crowd.errors == {}
    assert len(crowd.endings) == crowd.begun >= RUNS
