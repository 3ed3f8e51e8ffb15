"""Many sandboxes leak no processes, containers, threads, descriptors or memory.

`AGENT_TEST_LIVES=docker=2000,bwrap=20000` sets the numbers of sandboxes. By default they are small.
"""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path

import pytest

from agent.sandbox.base import SandboxBackend
from agent.streams import run_concurrently
from tests.sandbox.conftest import BACKENDS, make_test_job, passes, run_once, start
from tests.sandbox.leftovers import list_children, list_containers, take_inventory, wait_for_inventory

COUNTS = {"docker": 24, "bwrap": 200}
COUNTS |= {name: int(count) for name, count in (
    item.split("=") for item in os.environ.get("AGENT_TEST_LIVES", "").split(",") if item)}  # fmt: skip
CONCURRENCY = 4
WARM_UP = 8
GROWTH = 4 << 20
"""Bytes by which memory may grow for other reasons: allocators do not return all memory."""


def measure_memory() -> int:
    """Return this process's private memory in bytes."""
    gc.collect()
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))


async def run_many(backend: SandboxBackend, count: int) -> None:
    """Run `count` programs, each in a separate sandbox."""
    jobs = (make_test_job(f"assert {number} >= 0") for number in range(count))
    async for result in run_concurrently(jobs, lambda job: run_once(backend, job), concurrency=CONCURRENCY):
        assert passes(result, "test_a")


@pytest.mark.long
@pytest.mark.parametrize("name", BACKENDS)
async def test_many_sandboxes_leak_nothing(name: str) -> None:
    await (await start(name)).close()
    containers_before = await asyncio.to_thread(list_containers) if name == "docker" else set()
    before, children_before = take_inventory(), list_children()
    backend = await start(name)
    await run_many(backend, WARM_UP)
    initial = measure_memory()
    await run_many(backend, COUNTS[name])
    growth = measure_memory() - initial
    await backend.close()
    assert await wait_for_inventory(before) == before
    assert list_children() == children_before
    assert growth < GROWTH, f"{growth >> 10} KB for {COUNTS[name]} sandboxes"
    if name == "docker":
        assert await asyncio.to_thread(list_containers) <= containers_before
