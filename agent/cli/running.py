"""Runs a command's asynchronous work so that, however it ends, what it started is ended as well."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Return what the work returns; a terminate signal ends it in the same way as Ctrl-C.

    Raises:
        KeyboardInterrupt: it was ended; sandboxes and files are closed by then.
    """
    try:
        return asyncio.run(_ended_by_signals(work))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _ended_by_signals(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.current_task()
    assert task is not None
    # Ctrl-C is handled by asyncio.run itself
    with suppress(NotImplementedError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work
