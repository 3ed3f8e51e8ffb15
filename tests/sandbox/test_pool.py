"""Each sandbox of a pool is given out once, as many wait as asked for, and none is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agent.errors import SandboxError
from agent.sandbox import pool as pool_module
from agent.sandbox.pool import Pool
from agent.sandbox.scripted import _ScriptedSandbox


class Numbered(_ScriptedSandbox):
    """A sandbox that is its number."""

    def __init__(self, stand: Stand, number: int) -> None:
        self.stand = stand
        self.number = number

    @property
    def usable(self) -> bool:
        return self.number not in self.stand.broken

    async def release(self) -> None:
        await asyncio.sleep(0)
        self.stand.ended.append(self.number)


class Stand:
    """Starts numbered sandboxes when told to, and knows what became of each."""

    def __init__(self) -> None:
        self.begun = 0
        self.most_at_once = 0
        self.at_once = 0
        self.ended: list[int] = []
        self.broken: set[int] = set()
        self.failures: list[SandboxError] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def start(self) -> Numbered:
        self.begun += 1
        number = self.begun
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0)
            await self.gate.wait()
            if self.failures:
                raise self.failures.pop(0)
            return Numbered(self, number)
        finally:
            self.at_once -= 1


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    monkeypatch.setattr(pool_module, "REFILL_SECONDS", 0.0)
    return Stand()


@pytest.fixture
async def pool(stand: Stand) -> AsyncIterator[Pool[Numbered]]:
    made = Pool(stand.start, size=3, starts=2)
    yield made
    stand.gate.set()
    await made.close()


async def take(pool: Pool[Numbered]) -> int:
    return (await pool.take()).number


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def test_it_fills_up_to_its_size(pool: Pool[Numbered], stand: Stand) -> None:
    assert stand.begun == 0
    pool.fill()
    await settle()
    assert (pool.ready, stand.begun, stand.most_at_once) == (3, 3, 2)


async def test_each_sandbox_is_given_once(pool: Pool[Numbered], stand: Stand) -> None:
    taken = await asyncio.gather(*(take(pool) for _ in range(20)))
    assert sorted(taken) == sorted(set(taken))
    assert stand.most_at_once == 2
    await settle()
    assert pool.ready == 3


async def test_one_that_broke_while_it_waited_is_not_given(pool: Pool[Numbered], stand: Stand) -> None:
    pool.fill()
    await settle()
    stand.broken = {1, 2}
    assert await take(pool) == 3
    await settle()
    assert stand.ended == [1, 2]


async def test_a_failure_goes_to_who_waits(pool: Pool[Numbered], stand: Stand) -> None:
    stand.failures = [SandboxError("no room"), SandboxError("no room")]
    taken = await asyncio.gather(*(take(pool) for _ in range(4)), return_exceptions=True)
    assert [str(each) for each in taken] == ["no room", "no room", "3", "4"]


async def test_a_failure_nobody_waits_for_is_not_repeated(pool: Pool[Numbered], stand: Stand) -> None:
    stand.failures = [SandboxError("no room")] * 3
    pool.fill()
    await settle()
    assert (pool.ready, stand.begun) == (0, 3)
    assert await take(pool) == 4
    await settle()
    assert pool.ready == 3


async def test_who_stops_waiting_leaves_the_sandbox_to_others(pool: Pool[Numbered], stand: Stand) -> None:
    stand.gate.clear()
    waiting = [asyncio.ensure_future(take(pool)) for _ in range(3)]
    await settle()
    waiting[0].cancel()
    stand.gate.set()
    assert sorted(await asyncio.gather(*waiting[1:])) == [2, 3]
    await settle()
    assert pool.ready == 3
    assert stand.ended == []


async def test_closing_ends_what_waits_and_what_starts(pool: Pool[Numbered], stand: Stand) -> None:
    pool.fill()
    await settle()
    stand.gate.clear()
    assert await take(pool) == 1
    waiting = [asyncio.ensure_future(take(pool)) for _ in range(4)]
    await settle()
    await pool.close()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert ended[:2] == [2, 3]
    assert {str(each) for each in ended[2:]} == {"the sandbox backend was closed"}
    assert (stand.at_once, pool.ready, stand.ended) == (0, 0, [])
    with pytest.raises(SandboxError, match="closed"):
        await pool.take()
