"""Concurrency is limited, results can be ordered, and a consumer may cancel the work at any time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agent.errors import UsageError
from agent.streams import Put, Stream, cancel_and_wait, run_concurrently


class Numbers:
    """Counts to a limit, then waits forever. Takes a while to cancel."""

    def __init__(self, limit: int = 1, error: Exception | None = None) -> None:
        self.produced = 0
        self.closed = 0
        self._limit = limit
        self._error = error

    async def count(self, put: Put[int]) -> None:
        try:
            for number in range(self._limit):
                self.produced += 1
                await put(number)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.02)
            self.closed += 1
            if self._error is not None:
                raise self._error


async def start_counting(numbers: Numbers) -> Stream[int]:
    stream = Stream(numbers.count)
    assert await anext(stream) == 0
    return stream


async def test_a_stream_is_at_most_one_item_ahead() -> None:
    numbers = Numbers(limit=10)
    stream = await start_counting(numbers)
    await asyncio.sleep(0.02)
    assert numbers.produced == 3  # one taken, one ready, and one that waits for space
    await stream.aclose()


async def test_a_stream_that_is_never_read_does_no_work(loop_errors: list[str]) -> None:
    numbers = Numbers()
    stream = Stream(numbers.count)
    await asyncio.sleep(0.02)
    await cancel_and_wait(stream.task)
    with pytest.raises(UsageError, match="closed"):
        await anext(stream)
    assert (numbers.produced, loop_errors) == (0, [])


async def test_several_callers_may_close_and_wait_at_once(loop_errors: list[str]) -> None:
    numbers = Numbers()
    stream = await start_counting(numbers)
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    await asyncio.gather(cancel_and_wait(stream.task), stream.aclose(), cancel_and_wait(stream.task))
    assert numbers.closed == 1
    with pytest.raises(UsageError, match="closed"):
        await waiting
    assert loop_errors == []


async def test_a_garbage_collected_stream_ends(loop_errors: list[str]) -> None:
    numbers = Numbers()
    stream = await start_counting(numbers)
    task = stream.task
    del stream
    await asyncio.sleep(0)
    assert task.cancelling()
    await cancel_and_wait(task)
    assert (numbers.closed, task.done()) == (1, True)
    assert loop_errors == []


async def test_a_cancelled_consumer_closes_the_stream_first() -> None:
    numbers = Numbers()
    stream = await start_counting(numbers)
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert numbers.closed == 1
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_an_error_while_closing_is_raised_once(loop_errors: list[str]) -> None:
    stream = await start_counting(Numbers(error=OSError("the disk is full")))
    with pytest.raises(OSError, match="the disk is full"):
        await stream.aclose()
    await cancel_and_wait(stream.task)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert loop_errors == []


async def test_an_error_is_raised_after_the_items_before_it_and_ends_the_stream() -> None:
    async def fails(put: Put[int]) -> None:
        await put(1)
        raise OSError("broken")

    stream = Stream(fails)
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
