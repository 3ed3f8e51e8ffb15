"""One event loop for LangChain models, in a thread that lives as long as the process.

A pooled connection works only in the event loop that opened it, and a LangChain model keeps its connections when a loop
closes. Some families even share a pool among all models of a process. All calls of LangChain models therefore run in
this loop. The caller's own loops keep using the model's original pools.
"""

from __future__ import annotations

import asyncio
import copy
import os
import threading
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from functools import cached_property
from types import FunctionType, ModuleType
from typing import Any, TypeVar

Result = TypeVar("Result")

_LARGEST_MODEL = 10_000
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


async def run_in_background(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in the background loop, with the caller's context variables, and return its result.

    If the caller is cancelled, the coroutine is cancelled, too.
    """
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, _get_loop()))


def _get_loop() -> asyncio.AbstractEventLoop:
    """Return the background loop. Starts its thread on first use."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="agent.background", daemon=True).start()
        return _loop


def _forget_loop() -> None:
    """Forget the loop in a forked process, where its thread does not exist."""
    global _lock, _loop
    _lock, _loop = threading.Lock(), None


os.register_at_fork(after_in_child=_forget_loop)


class SeparatePool:
    """Wraps a connection pool of httpx so that requests from the background loop use a pool of their own."""

    def __init__(self, pool: Any) -> None:
        self._original = pool
        self._separate: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request through the pool of the current loop."""
        loop = asyncio.get_running_loop()
        if loop is not _loop:
            return await self._original.handle_async_request(request)
        if loop is not self._loop:  # the first request, or the first one after a fork
            self._separate, self._loop = copy.copy(self._original), loop
            vars(self._separate).update(_connections=[], _requests=[])
        return await self._separate.handle_async_request(request)


def separate_pools(model: Any) -> None:
    """Wrap the connection pools of all httpx clients that a model refers to. Call this in the background loop.

    Clients of other libraries are not changed. Such a client works as long as no other loop uses it.
    """
    pending, seen = deque([model]), dict[int, Any]()  # the values keep the objects alive, so that ids stay unique
    while pending and len(seen) < _LARGEST_MODEL:
        part = pending.popleft()
        if id(part) in seen or isinstance(part, type | FunctionType | ModuleType | str | bytes):
            continue
        seen[id(part)] = part
        if isinstance(part, dict | list | tuple):
            pending += part.values() if isinstance(part, dict) else part
            continue
        if part is model:
            _create_lazy_clients(model)
        members: dict[str, Any] = getattr(part, "__dict__", {})
        pool = members.get("_pool")
        if _is_pool(pool):
            part._pool = SeparatePool(pool)
        pending += [*members.values(), getattr(part, "__pydantic_private__", None)]


def _create_lazy_clients(model: Any) -> None:
    """Create the clients that a model creates on first use, such as those of `ChatAnthropic`."""
    for name in dir(type(model)):
        if "async_client" in name and isinstance(getattr(type(model), name), cached_property):
            with suppress(Exception):  # the call fails with the same exception
                getattr(model, name)


def _is_pool(value: Any) -> bool:
    return (
        hasattr(value, "handle_async_request")
        and {"_connections", "_requests"} <= getattr(value, "__dict__", {}).keys()
    )
