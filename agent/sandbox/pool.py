"""Sandboxes started ahead of need: each is given out once, so nobody finds what another left."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from agent.errors import SandboxError

S = TypeVar("S")

REFILL_SECONDS = 0.05
"""How long a start waits after a sandbox was taken: most programs have run by then, and starts take a core each."""


class Pool(Generic[S]):
    """Keeps `size` sandboxes ready; at most `starts` are starting at once, for whatever need.

    Used from one event loop. `start` gives a fresh sandbox and leaves none when it is cancelled; `end` releases one;
    `usable` says whether one that waited is still whole. A start that fails while nobody waits is not repeated until
    somebody asks, who is then given the error.
    """

    def __init__(
        self,
        start: Callable[[], Awaitable[S]],
        end: Callable[[S], Awaitable[None]],
        usable: Callable[[S], bool],
        *,
        size: int,
        starts: int,
    ) -> None:
        self._start = start
        self._end = end
        self._usable = usable
        self._size = size
        self._starts = starts
        self._ready: deque[S] = deque()
        self._waiting: deque[asyncio.Future[S]] = deque()
        self._starting: set[asyncio.Task[S]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._refill: asyncio.TimerHandle | None = None
        self._stalled = False
        self._closed = False

    @property
    def ready(self) -> int:
        """How many sandboxes wait to be taken."""
        return len(self._ready)

    def fill(self) -> None:
        """Start what is missing, as far as the limit on starts allows; returns at once."""
        self._refill = None
        waiting = sum(not waiter.done() for waiter in self._waiting)
        wanted = waiting + (0 if self._stalled else self._size)
        while not self._closed and len(self._starting) < self._starts:
            if len(self._ready) + len(self._starting) >= wanted:
                break
            task = asyncio.ensure_future(self._begin())
            self._starting.add(task)
            task.add_done_callback(self._started)

    async def take(self) -> S:
        """Return a sandbox that nobody had before: one that is ready, else the next that is.

        Raises:
            SandboxError: it could not be started, or the pool is closed.
        """
        if self._closed:
            raise SandboxError("the sandbox backend is closed")
        while self._ready:
            sandbox = self._ready.popleft()
            if self._usable(sandbox):
                self._fill_soon()
                return sandbox
            self._discard(sandbox)
        waiter: asyncio.Future[S] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._stalled = False
        self.fill()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._give(waiter.result())
                if self._closed:
                    await asyncio.gather(*self._ending, return_exceptions=True)
            raise

    async def close(self) -> None:
        """End every sandbox that was not taken; nobody who waits is given one."""
        self._closed = True
        if self._refill is not None:
            self._refill.cancel()
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(SandboxError("the sandbox backend was closed"))
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        while self._ready:
            self._discard(self._ready.popleft())
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _begin(self) -> S:
        return await self._start()

    def _started(self, task: asyncio.Task[S]) -> None:
        self._starting.discard(task)
        if not task.cancelled():
            error = task.exception()
            if error is None:
                self._give(task.result())
            elif (waiter := self._next_waiter()) is not None:
                waiter.set_exception(error)
            else:
                self._stalled = True
        self.fill()

    def _give(self, sandbox: S) -> None:
        waiter = self._next_waiter()
        if waiter is not None:
            waiter.set_result(sandbox)
        elif self._closed or len(self._ready) >= self._size:
            self._discard(sandbox)
        else:
            self._ready.append(sandbox)

    def _next_waiter(self) -> asyncio.Future[S] | None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                return waiter
        return None

    def _fill_soon(self) -> None:
        if self._refill is None:
            self._refill = asyncio.get_running_loop().call_later(REFILL_SECONDS, self.fill)

    def _discard(self, sandbox: S) -> None:
        task = asyncio.ensure_future(self._release(sandbox))
        self._ending.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        if not task.cancelled():
            task.exception()  # nobody had this sandbox, so nobody is to be told

    async def _release(self, sandbox: S) -> None:
        await self._end(sandbox)
