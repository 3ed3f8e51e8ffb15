"""Work on many items at once, and an iterator over its results that anybody may end at any moment and wait for."""

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


class Production(Generic[Item]):
    """A generator at work in a task of its own, which begins with the first item and is one ahead of who takes them.

    `abandoned` says whether nobody wants the rest of it.
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
        """Whether nothing goes on and nothing will."""
        return self.abandoned if self._task is None else self._task.done()

    async def take(self) -> Item:
        """Return the next item; being cancelled meanwhile ends the work first.

        Raises:
            StopAsyncIteration: there is none.
            UsageError: the work was ended from elsewhere.
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
        """Have the work end soon; from any thread."""
        self.abandoned = True
        if not self.is_finished:
            with suppress(RuntimeError):  # the loop is closed, and nothing goes on
                self._loop.call_soon_threadsafe(self._cancel)

    async def close(self) -> None:
        """End the work and wait for its end.

        Raises:
            Exception: what went wrong with ending it.
        """
        self.abandoned = True
        if self._task is None or self.is_finished:
            return
        self._cancel()
        await self.wait_until_done()
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise error

    async def wait_until_done(self) -> None:
        """Wait for the end of the work."""
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
        # once: a second time would end the work of ending
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
    """An asynchronous iterator over a production; closing it, or to hold it no longer, ends the work."""

    def __init__(self, production: Production[Item]) -> None:
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
        """End the work, and wait for its end."""
        self._closed = True
        await self._production.close()


async def iterate(items: Iterable[Item] | AsyncIterable[Item]) -> AsyncGenerator[Item, None]:
    """Yield items from either kind of source."""
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
    """Yield `work(item)` for each item, in completion order or (`ordered`) in input order.

    At most `concurrency` items are in progress, and as many again wait for their turn to be yielded in order; where it
    is a function, what it returns is asked for with every result. The first exception of `work` ends it, after the
    results that were there already; leaving early cancels what is in progress.
    """
    source = iterate(items)
    ended: asyncio.Queue[asyncio.Future[Any]] = asyncio.Queue()

    def begun(what: Awaitable[Any]) -> asyncio.Future[Any]:
        task = asyncio.ensure_future(what)
        task.add_done_callback(ended.put_nowait)
        return task

    pull: asyncio.Future[Any] | None = begun(anext(source, _END))
    running: dict[asyncio.Future[Result], int] = {}
    waiting: dict[int, Result] = {}
    taken = given = 0
    try:
        while pull is not None or running:
            limit = concurrency if isinstance(concurrency, int) else concurrency()
            while pull is not None and pull.done() and len(running) < limit and len(running) + len(waiting) < 2 * limit:
                item = pull.result()
                pull = None
                if item is not _END:
                    running[begun(work(item))] = taken
                    taken += 1
                    pull = begun(anext(source, _END))
            failed: BaseException | None = None
            for task in await _wait_for_tasks(ended) if pull is not None or running else ():
                if (index := running.pop(task, None)) is None:
                    continue
                if task.exception() is not None:
                    failed = failed or task.exception()
                else:
                    waiting[index] = task.result()
            while waiting and (not ordered or given in waiting):
                yield waiting.pop(given if ordered else next(iter(waiting)))
                given += 1
            if failed is not None:
                raise failed
    finally:
        tasks = [*running, *([] if pull is None else [pull])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await source.aclose()


async def _wait_for_tasks(queue: asyncio.Queue[asyncio.Future[Any]]) -> list[asyncio.Future[Any]]:
    """Return the tasks that have ended, at least one, in the order of their ends."""
    return [await queue.get(), *(queue.get_nowait() for _ in range(queue.qsize()))]
