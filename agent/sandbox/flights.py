"""Equal requests in flight share one piece of work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass
class _Flight(Generic[T]):
    task: asyncio.Task[T]
    waiters: int = 0


class Flights(Generic[T]):
    """Runs the work for a key once for all who ask while it runs; to be used from one event loop.

    A waiter that is cancelled leaves the others alone; when the last one leaves, the work is cancelled and has ended
    before that waiter goes on.
    """

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[T]] = {}

    async def join(self, key: Hashable, work: Callable[[], Awaitable[T]]) -> T:
        """Return what the work for `key` returns, starting it unless it runs."""
        flight = self._flights.get(key)
        if flight is None:
            flight = _Flight(asyncio.ensure_future(_run(work)))
            self._flights[key] = flight
            flight.task.add_done_callback(lambda _task: self._forget(key, flight))
        flight.waiters += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiters -= 1
            if flight.waiters == 0 and not flight.task.done():
                self._forget(key, flight)
                flight.task.cancel()
                await asyncio.wait({flight.task})

    def _forget(self, key: Hashable, flight: _Flight[T]) -> None:
        if flight.task.done() and not flight.task.cancelled():
            flight.task.exception()  # taken note of, should every waiter have left meanwhile
        if self._flights.get(key) is flight:
            del self._flights[key]


async def _run(work: Callable[[], Awaitable[T]]) -> T:
    return await work()
