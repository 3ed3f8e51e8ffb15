"""Many lives leave nothing: no process, container, thread, descriptor, and no memory that grows with their number.

`AGENT_TEST_LIVES=docker=2000,bwrap=20000` makes it as many as asked for; by default it is a small run.
"""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path

import pytest

from agent.sandbox.base import SandboxBackend
from agent.streams import run_concurrently
from tests.sandbox.conftest import BACKENDS, passes, start, statements
from tests.sandbox.leftovers import children, comes_to, containers, held

LIVES = {"docker": 24, "bwrap": 200}
LIVES |= {name: int(count) for name, count in (
    item.split("=") for item in os.environ.get("AGENT_TEST_LIVES", "").split(",") if item)}  # fmt: skip
AT_ONCE = 4
WARM_UP = 8
GROWTH = 4 << 20
"""Bytes by which memory may grow for other reasons: an allocator keeps what it had at its largest."""


def resident() -> int:
    """Return the memory that this process has for itself, in bytes."""
    gc.collect()
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))


async def live(backend: SandboxBackend, number: int) -> bool:
    sandbox = await backend.acquire()
    try:
        return passes(await sandbox.run(statements(f"assert {number} >= 0")), "test_a")
    finally:
        await sandbox.release()


async def lives(backend: SandboxBackend, count: int) -> None:
    """Run that many programs, each in a sandbox of its own."""
    async for passed in run_concurrently(range(count), lambda number: live(backend, number), concurrency=AT_ONCE):
        assert passed


@pytest.mark.long
@pytest.mark.parametrize("name", BACKENDS)
async def test_many_lives_leave_nothing(name: str) -> None:
    await (await start(name)).close()
    ours = await asyncio.to_thread(containers) if name == "docker" else set()
    before, reaped = held(), children()
    backend = await start(name)
    await lives(backend, WARM_UP)
    at_first = resident()
    await lives(backend, LIVES[name])
    grown = resident() - at_first
    await backend.close()
    assert await comes_to(before) == before
    assert children() == reaped
    assert grown < GROWTH, f"{grown >> 10} KB for {LIVES[name]} lives"
    if name == "docker":
        assert await asyncio.to_thread(containers) <= ours
