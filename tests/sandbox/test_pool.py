"""Each sandbox of a pool is handed out once, the pool is refilled to its size, and nothing leaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agent.errors import SandboxError
from agent.sandbox import pool as pool_module
from agent.sandbox.pool import Pool
from agent.sandbox.scripted import _ScriptedSandbox


class Numbered(_ScriptedSandbox):
    """A sandbox with a number."""

    def __init__(self, starter: Starter, number: int) -> None:
        self.starter = starter
        self.number = number

    @property
    def usable(self) -> bool:
        return self.number not in self.starter.broken

    async def release(self) -> None:
        await asyncio.sleep(0)
        self.starter.released.append(self.number)


class Starter:
    """Starts numbered sandboxes while `gate` is set, and records starts and releases."""

    def __init__(self) -> None:
        self.started = 0
        self.most_starting = 0
        self.starting = 0
        self.released: list[int] = []
        self.broken: set[int] = set()
        self.failures: list[SandboxError] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def start(self) -> Numbered:
        self.started += 1
        number = self.started
        self.starting += 1
        self.most_starting = max(self.most_starting, self.starting)
        try:
            await asyncio.sleep(0)
            await self.gate.wait()
            if self.failures:
                raise self.failures.pop(0)
            return Numbered(self, number)
        finally:
            self.starting -= 1


@pytest.fixture
def starter(monkeypatch: pytest.MonkeyPatch) -> Starter:
    monkeypatch.setattr(pool_module, "REFILL_SECONDS", 0.0)
    return Starter()


@pytest.fixture
async def pool(starter: Starter) -> AsyncIterator[Pool[Numbered]]:
    pool = Pool(starter.start, size=3, starts=2)
    yield pool
    starter.gate.set()
    await pool.close()


async def take(pool: Pool[Numbered]) -> int:
    return (await pool.take()).number


async def let_tasks_run() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def test_a_pool_fills_up_to_its_size(pool: Pool[Numbered], starter: Starter) -> None:
    assert starter.started == 0
    pool.fill()
    await let_tasks_run()
    assert (pool.ready_count, starter.started, starter.most_starting) == (3, 3, 2)


async def test_each_sandbox_is_handed_out_once(pool: Pool[Numbered], starter: Starter) -> None:
    numbers = await asyncio.gather(*(take(pool) for _ in range(20)))
    assert sorted(numbers) == sorted(set(numbers))
    assert starter.most_starting == 2
    await let_tasks_run()
    assert pool.ready_count == 3


async def test_unusable_sandboxes_are_not_handed_out(pool: Pool[Numbered], starter: Starter) -> None:
    pool.fill()
    await let_tasks_run()
    starter.broken = {1, 2}
    assert await take(pool) == 3
    await let_tasks_run()
    assert starter.released == [1, 2]


async def test_renewing_replaces_idle_and_starting_sandboxes(pool: Pool[Numbered], starter: Starter) -> None:
    pool.fill()
    await let_tasks_run()
    starter.gate.clear()
    assert await take(pool) == 1
    await let_tasks_run()
    pool.renew()
    await let_tasks_run()
    starter.gate.set()
    await let_tasks_run()
    assert (starter.released, starter.starting, pool.ready_count) == ([2, 3], 0, 3)
    assert await take(pool) > 4


async def test_a_failed_start_raises_in_the_waiting_task(pool: Pool[Numbered], starter: Starter) -> None:
    starter.failures = [SandboxError("no room"), SandboxError("no room")]
    results = await asyncio.gather(*(take(pool) for _ in range(4)), return_exceptions=True)
    assert [str(result) for result in results] == ["no room", "no room", "3", "4"]


async def test_failed_starts_are_retried_only_on_demand(pool: Pool[Numbered], starter: Starter) -> None:
    starter.failures = [SandboxError("no room")] * 3
    pool.fill()
    await let_tasks_run()
    assert (pool.ready_count, starter.started) == (0, 3)
    assert await take(pool) == 4
    await let_tasks_run()
    assert pool.ready_count == 3


async def test_a_cancelled_waiter_leaves_its_sandbox_to_others(pool: Pool[Numbered], starter: Starter) -> None:
    starter.gate.clear()
    waiting = [asyncio.ensure_future(take(pool)) for _ in range(3)]
    await let_tasks_run()
    waiting[0].cancel()
    starter.gate.set()
    assert sorted(await asyncio.gather(*waiting[1:])) == [2, 3]
    await let_tasks_run()
    assert pool.ready_count == 3
    assert starter.released == []


async def test_closing_releases_idle_and_starting_sandboxes(pool: Pool[Numbered], starter: Starter) -> None:
    pool.fill()
    await let_tasks_run()
    starter.gate.clear()
    assert await take(pool) == 1
    waiting = [asyncio.ensure_future(take(pool)) for _ in range(4)]
    await let_tasks_run()
    await pool.close()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert results[:2] == [2, 3]
    assert {type(result) for result in results[2:]} == {SandboxError}
    assert (starter.starting, pool.ready_count, starter.released) == (0, 0, [])
    with pytest.raises(SandboxError, match="closed"):
        await pool.take()
