"""Concurrent work on many items, with an iterator over the results. The work can be cancelled at any time."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Generic, Self, TypeVar

from agent.errors import UsageError

Item = TypeVar("Item")
Result = TypeVar("Result")
_END: Any = object()
Put = Callable[[Item], Awaitable[None]]


class Stream(Generic[Item]):
    """An asynchronous iterator over the items that `produce` passes to its argument.

    `produce` runs in `task`, one item ahead of the consumer, and starts when the first item is requested. If the
    iterator is closed or garbage-collected, or a waiting consumer is cancelled, the task is cancelled.
    """

    def __init__(self, produce: Callable[[Put[Item]], Awaitable[None]]) -> None:
        self._items: asyncio.Queue[Item] = asyncio.Queue()
        self._room = asyncio.Semaphore(1)
        self._started = asyncio.Event()
        self._ended = False
        self.task = asyncio.ensure_future(_produce(produce, self._items, self._room, self._started))
        items = self._items  # the callbacks must not refer to the iterator, which is to be garbage-collected
        self.task.add_done_callback(lambda _task: items.put_nowait(_END))
        weakref.finalize(self, _abandon, self.task).atexit = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        if self._ended:
            raise StopAsyncIteration
        self._started.set()
        try:
            item = await self._items.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if item is not _END:
            self._room.release()
            return item
        self._ended = True
        if self.task.cancelled():
            raise UsageError("the Annotator was closed before all pairs were annotated")
        raise self.task.exception() or StopAsyncIteration

    async def aclose(self) -> None:
        """Cancel the task and wait until it is done.

        Raises:
            Exception: the task failed while it was cancelled.
        """
        self._ended = True
        await cancel_and_wait(self.task)


async def cancel_and_wait(task: asyncio.Task[None]) -> None:
    """Cancel a task unless it is done, and wait until it is done.

    Raises:
        Exception: the task failed while it was cancelled.
    """
    if task.done():
        return
    _cancel_once(task)
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


def _cancel_once(task: asyncio.Task[None]) -> None:
    if not task.cancelling():  # a second cancellation would interrupt the clean-up
        task.cancel()


def _abandon(task: asyncio.Task[None]) -> None:
    """Cancel a task from any thread, without waiting for it."""
    with suppress(RuntimeError):  # the loop is closed, so the task is done
        task.get_loop().call_soon_threadsafe(_cancel_once, task)


async def _produce(
    produce: Callable[[Put[Item]], Awaitable[None]],
    items: asyncio.Queue[Item],
    room: asyncio.Semaphore,
    started: asyncio.Event,
) -> None:
    async def put(item: Item) -> None:
        await room.acquire()
        items.put_nowait(item)

    await started.wait()
    await produce(put)


async def iterate(items: Iterable[Item] | AsyncIterable[Item]) -> AsyncGenerator[Item, None]:
    """Iterate over the items of a synchronous or asynchronous source."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


async def run_concurrently(
    items: Iterable[Item] | AsyncIterable[Item],
    work: Callable[[Item], Awaitable[Result]],
    *,
    concurrency: int | Callable[[], int],
    ordered: bool = False,
) -> AsyncGenerator[Result, None]:
    """Iterate over the results of `work(item)`, in completion order or, with `ordered`, in input order.

    At most `concurrency` items are in progress. With `ordered`, finished results may have to wait for earlier items.
    The total number of items in progress and waiting results is at most twice `concurrency`. If `concurrency` is a
    function, it is called again after each result. If `work` raises an exception, the results that were available
    earlier are yielded first. The exception is then raised. Leaving the loop early cancels the items in progress.
    """
    source = iterate(items)
    done: asyncio.Queue[asyncio.Future[Any]] = asyncio.Queue()

    def start(coroutine: Awaitable[Any]) -> asyncio.Future[Any]:
        task = asyncio.ensure_future(coroutine)
        task.add_done_callback(done.put_nowait)
        return task

    pull: asyncio.Future[Any] | None = start(anext(source, _END))
    running: dict[asyncio.Future[Result], int] = {}
    waiting: dict[int, Result] = {}
    started = yielded = 0
    try:
        while pull is not None or running:
            limit = concurrency if isinstance(concurrency, int) else concurrency()
            while pull is not None and pull.done() and len(running) < limit and len(running) + len(waiting) < 2 * limit:
                item = pull.result()
                pull = None
                if item is not _END:
                    running[start(work(item))] = started
                    started += 1
                    pull = start(anext(source, _END))
            failure: BaseException | None = None
            for task in await _wait_for_tasks(done) if pull is not None or running else ():
                if (index := running.pop(task, None)) is None:
                    continue
                if task.exception() is not None:
                    failure = failure or task.exception()
                else:
                    waiting[index] = task.result()
            while waiting and (not ordered or yielded in waiting):
                yield waiting.pop(yielded if ordered else next(iter(waiting)))
                yielded += 1
            if failure is not None:
                raise failure
    finally:
        tasks = [*running, *([] if pull is None else [pull])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await source.aclose()


async def _wait_for_tasks(queue: asyncio.Queue[asyncio.Future[Any]]) -> list[asyncio.Future[Any]]:
    """Wait until at least one task is done. Return all tasks that are done, in completion order."""
    return [await queue.get(), *(queue.get_nowait() for _ in range(queue.qsize()))]
