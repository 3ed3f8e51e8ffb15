"""One event loop for LangChain models and embeddings, in a thread that lives as long as the process.

A pooled connection works only in the event loop that opened it, and a LangChain model keeps its connections when a loop
closes. Some families even share a pool among all models of a process. All calls of LangChain models therefore run in
this loop. Its thread has its own connections in each pool of httpx. The caller's own loops use the pools as before.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

Result = TypeVar("Result")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop
_thread: threading.Thread | None = None
_own = threading.local()


def run_in_background(work: Coroutine[Any, Any, Result]) -> Future[Result]:
    """Run a coroutine in the background loop, with the caller's context variables."""
    return asyncio.run_coroutine_threadsafe(work, _get_loop())


def _get_loop() -> asyncio.AbstractEventLoop:
    """Return the background loop. Starts its thread on first use."""
    global _loop, _thread
    with _lock:
        if _thread is None or not _thread.is_alive():  # a forked process does not have its parent's thread
            _separate_pools()
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=_run_forever, args=(_loop,), name="agent.background", daemon=True)
            _thread.start()
        return _loop


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    _own.pools = WeakKeyDictionary()
    loop.run_forever()


@cache
def _separate_pools() -> None:
    """Make all connection pools of httpx and httpx2 open separate connections for the background thread.

    Clients of other libraries are not changed. Such a client works as long as no other loop uses it.
    """
    for library in ("httpcore", "httpcore2"):
        with suppress(ImportError):
            _separate_pools_of(import_module(library).AsyncConnectionPool)


def _separate_pools_of(pool_class: Any) -> None:
    send = pool_class.handle_async_request

    async def handle_async_request(pool: Any, request: Any) -> Any:
        if (pools := getattr(_own, "pools", None)) is None:
            return await send(pool, request)
        if pool not in pools:
            pools[pool] = copy.copy(pool)
            vars(pools[pool]).update(_connections=[], _requests=[])
        return await send(pools[pool], request)

    pool_class.handle_async_request = handle_async_request
