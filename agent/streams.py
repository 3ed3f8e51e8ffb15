"""Hands out what a generator yields, from a task of its own: anybody may end it at any moment, and wait for its end."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, Generic, Self, TypeVar

from agent.errors import UsageError

Item = TypeVar("Item")
_END: Any = object()


class Production(Generic[Item]):
    """A generator at work in a task of its own, which begins with the first item and is one ahead of who takes them.

    `left` says whether nobody wants the rest of it.
    """

    def __init__(self, source: AsyncGenerator[Item, None]) -> None:
        self._source = source
        self._items: asyncio.Queue[Item] = asyncio.Queue()
        self._room = asyncio.Semaphore(1)
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._cancelled = self._told = False
        self.left = False

    @property
    def over(self) -> bool:
        """Whether nothing goes on and nothing will."""
        return self.left if self._task is None else self._task.done()

    async def take(self) -> Item:
        """Return the next item; being cancelled meanwhile ends the work first.

        Raises:
            StopAsyncIteration: there is none.
            UsageError: the work was ended from elsewhere.
        """
        if self._told:
            raise StopAsyncIteration
        if self._task is None and not self.left:
            self._task = asyncio.ensure_future(self._produce())
        try:
            item = _END if self._task is None else await self._items.get()
        except asyncio.CancelledError:
            self._told = True
            await self.close()
            raise
        if item is _END:
            await self._tell_end()
        self._room.release()
        return item

    def leave(self) -> None:
        """Have the work end soon; from any thread."""
        self.left = True
        if not self.over:
            with suppress(RuntimeError):  # the loop is closed, and nothing goes on
                self._loop.call_soon_threadsafe(self._cancel)

    async def close(self) -> None:
        """End the work and wait for its end.

        Raises:
            Exception: what went wrong with ending it.
        """
        self.left = True
        if self._task is None or self.over:
            return
        self._cancel()
        await self.end()
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise error

    async def end(self) -> None:
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

    async def _tell_end(self) -> None:
        await self.end()
        self._told = True
        if self._task is None or self._task.cancelled():
            raise UsageError("the Annotator was closed before all pairs were annotated")
        raise self._task.exception() or StopAsyncIteration


class Stream(Generic[Item]):
    """An asynchronous iterator over a production; closing it, or to hold it no longer, ends the work."""

    def __init__(self, production: Production[Item]) -> None:
        self._production = production
        self._closed = False
        weakref.finalize(self, production.leave).atexit = False

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
