"""Work is done so much at once, in the order asked for, and ends cleanly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agent.streams import completed


async def test_results_come_in_completion_order() -> None:
    gates = {n: asyncio.Event() for n in range(3)}

    async def work(n: int) -> int:
        await gates[n].wait()
        return n

    gates[2].set()
    order = []
    async for n in completed(range(3), work, concurrency=3):
        order.append(n)
        if n:
            gates[n - 1].set()
    assert order == [2, 1, 0]


async def test_ordered_results_come_in_input_order() -> None:
    gates = {n: asyncio.Event() for n in range(3)}

    async def work(n: int) -> int:
        await gates[n].wait()
        if n:
            gates[n - 1].set()
        return n

    gates[2].set()
    assert [n async for n in completed(range(3), work, concurrency=3, ordered=True)] == [0, 1, 2]


@pytest.mark.parametrize("ordered", [False, True])
async def test_no_more_than_the_limit_is_in_progress(ordered: bool) -> None:
    now = most = 0
    four = asyncio.Barrier(4)

    async def work(n: int) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await four.wait()
        now -= 1
        return n

    assert sorted([n async for n in completed(range(48), work, concurrency=4, ordered=ordered)]) == list(range(48))
    assert most == 4


async def test_a_slow_first_item_holds_back_the_source_when_ordered() -> None:
    first = asyncio.Event()
    pulled = 0

    async def source() -> AsyncIterator[int]:
        nonlocal pulled
        for n in range(1000):
            pulled += 1
            yield n

    async def work(n: int) -> int:
        if n == 0:
            await first.wait()
        return n

    async def open_the_gate() -> None:
        for _ in range(2000):
            await asyncio.sleep(0)
        assert pulled < 20
        first.set()

    opener = asyncio.ensure_future(open_the_gate())
    results = [n async for n in completed(source(), work, concurrency=4, ordered=True)]
    await opener
    assert results == list(range(1000))


async def test_an_exception_ends_the_work_and_cancels_the_rest() -> None:
    cancelled = []
    before = asyncio.all_tasks()

    async def work(n: int) -> int:
        if n == 0:
            raise ValueError("broken")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(n)
            raise
        return n

    with pytest.raises(ValueError, match="broken"):
        async for _ in completed(range(3), work, concurrency=3):
            pass
    assert set(cancelled) <= {1, 2}
    assert asyncio.all_tasks() <= before


async def test_leaving_early_cancels_what_is_in_progress() -> None:
    cancelled = []
    all_started = asyncio.Barrier(3)

    async def work(n: int) -> int:
        await all_started.wait()
        if n:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(n)
                raise
        return n

    stream = completed(range(3), work, concurrency=3)
    async for result in stream:
        assert result == 0
        break
    await stream.aclose()
    assert cancelled == [1, 2]


async def test_an_error_of_the_source_is_raised() -> None:
    async def source() -> AsyncIterator[int]:
        yield 1
        raise OSError("unreadable")

    async def work(n: int) -> int:
        return n

    with pytest.raises(OSError, match="unreadable"):
        async for _ in completed(source(), work, concurrency=1):
            pass
