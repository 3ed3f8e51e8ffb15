"""A pool of sandboxes that are started in advance. Each sandbox is used only once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from agent.errors import SandboxError
from agent.sandbox.base import Sandbox

S = TypeVar("S", bound=Sandbox)

REFILL_SECONDS = 0.05
"""Delay before a taken sandbox is replaced. Starting a sandbox occupies a core, and most programs end within 50 ms."""


class Pool(Generic[S]):
    """Keeps `size` sandboxes ready or starting. At most `starts` of them start at once. Use it from one event loop.

    `start` returns a fresh sandbox. If `start` is cancelled, it must leave no sandbox behind. If a start fails before a
    `take` call waits for it, the next call starts another sandbox.
    """

    def __init__(self, start: Callable[[], Awaitable[S]], *, size: int, starts: int) -> None:
        self._start = start
        self._size = size
        self._gate = asyncio.Semaphore(starts)
        self._available: deque[asyncio.Task[S]] = deque()
        self._awaited: set[asyncio.Task[S]] = set()
        self._releases: set[asyncio.Task[Any]] = set()
        self._refill: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def ready_count(self) -> int:
        """The number of sandboxes that are ready for use."""
        return sum(_has_succeeded(task) for task in self._available)

    def fill(self) -> None:
        """Start the missing sandboxes in the background."""
        self._refill = None
        while not self._closed and len(self._available) < self._size:
            self._available.append(asyncio.ensure_future(self._start_sandbox()))

    def renew(self) -> None:
        """Replace the sandboxes that were not taken, because new ones differ from them."""
        while self._available:
            task = self._available.popleft()
            if task.done():
                self._release(task)
            else:
                task.cancel()
                self._track(task)
        self.fill()

    async def take(self) -> S:
        """Return an unused sandbox, waiting for one to start if none is ready.

        Raises:
            SandboxError: the sandbox did not start, or the pool is closed.
        """
        if self._closed:
            raise SandboxError("the sandbox backend is closed")
        while True:
            task = self._available.popleft() if self._available else asyncio.ensure_future(self._start_sandbox())
            if self._refill is None:
                self._refill = asyncio.get_running_loop().call_later(REFILL_SECONDS, self.fill)
            if not task.done():
                return await self._wait_for(task)
            if _has_succeeded(task):
                if task.result().usable:
                    return task.result()
                self._release(task)

    async def close(self) -> None:
        """Release every sandbox that was not taken. Pending `take` calls raise `SandboxError`."""
        self._closed = True
        if self._refill is not None:
            self._refill.cancel()
        for task in (*self._available, *self._awaited):
            task.cancel()
        await asyncio.gather(*self._available, *self._awaited, return_exceptions=True)
        while self._available:
            self._release(self._available.popleft())
        await asyncio.gather(*self._releases, return_exceptions=True)

    async def _start_sandbox(self) -> S:
        async with self._gate:
            return await self._start()

    async def _wait_for(self, task: asyncio.Task[S]) -> S:
        self._awaited.add(task)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._closed and task.cancelled():
                raise SandboxError("the sandbox backend was closed") from None
            if len(self._available) < self._size and not self._closed:
                self._available.appendleft(task)  # for the next `take` call
            else:
                task.cancel()
                await asyncio.wait({task})
                self._release(task)
            raise
        finally:
            self._awaited.discard(task)

    def _release(self, task: asyncio.Task[S]) -> None:
        """Release the task's sandbox in the background if it started. Ignores errors."""
        if _has_succeeded(task):
            self._track(asyncio.ensure_future(task.result().release()))

    def _track(self, release: asyncio.Task[Any]) -> None:
        """Make `close` wait until a task in the background has released its sandbox."""
        self._releases.add(release)
        release.add_done_callback(self._forget_release)

    def _forget_release(self, release: asyncio.Task[Any]) -> None:
        self._releases.discard(release)
        if not release.cancelled():
            release.exception()


def _has_succeeded(task: asyncio.Task[S]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
