"""Concurrent work on many items, with an iterator over the results. The work can be cancelled at any time."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from typing import Any, Generic, Self, TypeVar

from agent.errors import UsageError

Item = TypeVar("Item")
Result = TypeVar("Result")
_END: Any = object()


class BackgroundIterator(Generic[Item]):
    """Runs a generator in its own task, one item ahead of the consumer. The task starts when `take` is first called.

    `abandoned` is true if no consumer will request the remaining items.
    """

    def __init__(self, source: AsyncGenerator[Item, None]) -> None:
        self._source = source
        self._items: asyncio.Queue[Item] = asyncio.Queue()
        self._room = asyncio.Semaphore(1)
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._cancelled = self._delivered = False
        self.abandoned = False

    @property
    def is_finished(self) -> bool:
        """Whether the task is done, or was abandoned before it started."""
        return self.abandoned if self._task is None else self._task.done()

    async def take(self) -> Item:
        """Return the next item. If the caller is cancelled, close the production first.

        Raises:
            StopAsyncIteration: there are no more items.
            UsageError: another caller closed the production.
        """
        if self._delivered:
            raise StopAsyncIteration
        if self._task is None and not self.abandoned:
            self._task = asyncio.ensure_future(self._produce())
        try:
            item = _END if self._task is None else await self._items.get()
        except asyncio.CancelledError:
            self._delivered = True
            await self.close()
            raise
        if item is _END:
            await self._deliver_end()
        self._room.release()
        return item

    def abandon(self) -> None:
        """Cancel the task without waiting for it to finish. Can be called from any thread."""
        self.abandoned = True
        if not self.is_finished:
            with suppress(RuntimeError):  # the loop is closed, so the task is done
                self._loop.call_soon_threadsafe(self._cancel)

    async def close(self) -> None:
        """Cancel the task and wait until it is done.

        Raises:
            Exception: the task failed while it was cancelled.
        """
        self.abandoned = True
        if self._task is None or self.is_finished:
            return
        self._cancel()
        await self.wait_until_done()
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise error

    async def wait_until_done(self) -> None:
        """Wait until the task is done."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _produce(self) -> None:
        try:
            async with aclosing(self._source) as items:
                async for item in items:
                    await self._room.acquire()
                    self._items.put_nowait(item)
        finally:
            self._items.put_nowait(_END)

    def _cancel(self) -> None:
        # only once: a second cancellation would interrupt the clean-up
        if self._task is not None and not self._cancelled:
            self._cancelled = True
            self._task.cancel()

    async def _deliver_end(self) -> None:
        await self.wait_until_done()
        self._delivered = True
        if self._task is None or self._task.cancelled():
            raise UsageError("the Annotator was closed before all pairs were annotated")
        raise self._task.exception() or StopAsyncIteration


class Stream(Generic[Item]):
    """An asynchronous iterator over the items of a production.

    If the iterator is closed or garbage-collected, the work is cancelled.
    """

    def __init__(self, production: BackgroundIterator[Item]) -> None:
        self._production = production
        self._closed = False
        weakref.finalize(self, production.abandon).atexit = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        if self._closed:
            raise StopAsyncIteration
        return await self._production.take()

    async def aclose(self) -> None:
        """Cancel the work and wait until it has stopped."""
        self._closed = True
        await self._production.close()


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
