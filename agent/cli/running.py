"""Runs a command's asynchronous work so that, however it ends, what it started is ended as well."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from agent.cli import STOPPED

T = TypeVar("T")
_ENDING = b"What is at work is being ended. Once more, and it is left as it is.\n"


def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Return what the work returns; Ctrl-C and a terminate signal end it, and a third one the process.

    Raises:
        KeyboardInterrupt: it was ended; sandboxes and files are closed by then.
    """
    signals = _Signals()
    with signals.handled():
        try:
            result = asyncio.run(signals.ending(work))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
    if signals.count:
        raise KeyboardInterrupt
    return result


class _Signals:
    """Cancels the work at the first signal. asyncio's own way leaves it half ended at the second."""

    def __init__(self) -> None:
        self.count = 0
        self._task: asyncio.Task[Any] | None = None

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Take the signals, but for those that this process was started to ignore."""
        names = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) is not signal.SIG_IGN]
        usual = {name: signal.signal(name, self._take) for name in names}
        try:
            yield
        finally:
            for name, handler in usual.items():
                signal.signal(name, handler)

    async def ending(self, work: Coroutine[Any, Any, T]) -> T:
        """Await the work, unless a signal came before it."""
        self._task = asyncio.current_task()
        if self.count:
            work.close()
            raise asyncio.CancelledError
        with _waking():
            return await work

    def _take(self, *_: object) -> None:
        self.count += 1
        if self.count > 2:
            os._exit(STOPPED)
        if self.count == 2:
            os.write(2, _ENDING)
        elif self._task is not None and not self._task.done():
            self._task.cancel()
            # it may be waiting, with nothing to wake it up
            self._task.get_loop().call_soon_threadsafe(lambda: None)


@contextmanager
def _waking() -> Iterator[None]:
    """Have each signal wake the loop up: one that another thread is given is else not seen while it waits."""
    loop = asyncio.get_running_loop()
    woken, waking = socket.socketpair()
    with woken, waking:
        for end in (woken, waking):
            end.setblocking(False)
        loop.add_reader(woken, woken.recv, 4096)
        before = signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(woken)
