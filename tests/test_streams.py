"""Concurrency is limited, results can be ordered, and a consumer may cancel the work at any time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from agent.errors import UsageError
from agent.streams import BackgroundIterator, Stream, run_concurrently


class Numbers:
    """Counts to a limit, then waits forever. Takes a while to cancel."""

    def __init__(self, limit: int = 1, error: Exception | None = None) -> None:
        self.produced = 0
        self.closed = 0
        self._limit = limit
        self._error = error

    async def count(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(self._limit):
                self.produced += 1
                yield number
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.02)
            self.closed += 1
            if self._error is not None:
                raise self._error


async def start_counting(numbers: Numbers) -> tuple[BackgroundIterator[int], Stream[int]]:
    production = BackgroundIterator(numbers.count())
    stream = Stream(production)
    assert await anext(stream) == 0
    return production, stream


async def test_a_production_is_at_most_one_item_ahead() -> None:
    numbers = Numbers(limit=10)
    _, stream = await start_counting(numbers)
    await asyncio.sleep(0.02)
    assert numbers.produced == 3  # one taken, one ready, and one that waits for space
    await stream.aclose()


async def test_several_callers_may_close_and_wait_at_once(loop_errors: list[str]) -> None:
    numbers = Numbers()
    production, stream = await start_counting(numbers)
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    await asyncio.gather(production.close(), stream.aclose(), production.close(), production.wait_until_done())
    assert numbers.closed == 1
    with pytest.raises(UsageError, match="closed"):
        await waiting
    assert loop_errors == []


async def test_a_garbage_collected_stream_ends(loop_errors: list[str]) -> None:
    numbers = Numbers()
    production, stream = await start_counting(numbers)
    del stream
    assert production.abandoned
    await production.close()
    assert (numbers.closed, production.is_finished) == (1, True)
    assert loop_errors == []


async def test_a_cancelled_consumer_closes_the_production_first() -> None:
    numbers = Numbers()
    _, stream = await start_counting(numbers)
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert numbers.closed == 1
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_an_error_while_closing_is_raised_once(loop_errors: list[str]) -> None:
    production, stream = await start_counting(Numbers(error=OSError("the disk is full")))
    with pytest.raises(OSError, match="the disk is full"):
        await stream.aclose()
    await production.close()
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert loop_errors == []


async def test_an_error_is_raised_after_the_items_before_it_and_ends_the_stream() -> None:
    async def fails() -> AsyncGenerator[int, None]:
        yield 1
        raise OSError("broken")

    stream = Stream(BackgroundIterator(fails()))
    assert await anext(stream) == 1
    with pytest.raises(OSError, match="broken"):
        await anext(stream)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_results_are_in_completion_order() -> None:
    gates = {n: asyncio.Event() for n in range(3)}

    async def work(n: int) -> int:
        await gates[n].wait()
        return n

    gates[2].set()
    order = []
    async for n in run_concurrently(range(3), work, concurrency=3):
        order.append(n)
        if n:
            gates[n - 1].set()
    assert order == [2, 1, 0]


@pytest.mark.parametrize("ordered", [False, True])
async def test_concurrency_is_limited(ordered: bool) -> None:
    now = most = 0
    four = asyncio.Barrier(4)

    async def work(n: int) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await four.wait()
        now -= 1
        return n

    results = run_concurrently(range(48), work, concurrency=4, ordered=ordered)
    assert sorted([n async for n in results]) == [*range(48)]
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
    results = [n async for n in run_concurrently(source(), work, concurrency=4, ordered=True)]
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
        async for _ in run_concurrently(range(3), work, concurrency=3):
            pass
    assert set(cancelled) <= {1, 2}
    assert asyncio.all_tasks() <= before
