"""Ctrl-C and terminate signals: the first one stops the command and cleans up, the second one exits at once."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

STOPPED = 3
"""The exit code of a command that stopped early."""
INTERRUPTED = b"Interrupted.\n"
_STOPPING = b"Stopping. Press Ctrl-C again to exit without cleaning up.\n"
_RETRY = 0.01  # seconds
T = TypeVar("T")


class _Handler:
    """Handles both signals, also while an event loop is blocked. `cancels`: a loop cancels the work at the first."""

    stopping = False
    cancels = False

    def __call__(self, _number: int, frame: FrameType | None) -> None:
        if self.stopping:
            os.write(2, INTERRUPTED)
            os._exit(STOPPED)
        self.stopping = True
        if self.cancels:
            os.write(2, _STOPPING)
        else:
            _raise_after_import(signal.SIGALRM, frame)


_handler = _Handler()


def _raise_after_import(_number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, but not within an import, which may swallow the exception and print a traceback."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            signal.setitimer(signal.ITIMER_REAL, _RETRY)
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def _retry_lost(unraisable: sys.UnraisableHookArgs) -> None:
    """Raise a KeyboardInterrupt later that a finalizer has swallowed."""
    if unraisable.exc_type is KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, _RETRY)
    else:
        sys.__unraisablehook__(unraisable)


def _find_handled_signals() -> list[signal.Signals]:
    """Return the signals that this process was not started to ignore, as by nohup."""
    return [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) is not signal.SIG_IGN]


def install() -> None:
    """Handle the signals from now on: outside `run_interruptible`, the first one raises KeyboardInterrupt."""
    signal.signal(signal.SIGALRM, _raise_after_import)
    sys.unraisablehook = _retry_lost
    for number in _find_handled_signals():
        signal.signal(number, _handler)
        # Python's own clean-up would restore the system's handler, which kills the process
        atexit.register(signal.signal, number, signal.SIG_IGN)


def finish() -> None:
    """Have the next signal exit at once: nothing is left to clean up."""
    _handler.stopping = True
    signal.setitimer(signal.ITIMER_REAL, 0)


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop of its own and return its result. The first signal cancels it.

    Raises:
        KeyboardInterrupt: a signal came, and the work has cleaned up.
    """
    import asyncio  # takes too long for commands that need no loop

    numbers, stopping_before = _find_handled_signals(), _handler.stopping
    previous = {number: signal.getsignal(number) for number in numbers}

    async def run_cancellable() -> T:
        task = asyncio.current_task()
        assert task is not None
        _handler.cancels = True
        for number in numbers:
            # wakes the loop, whichever thread receives the signal, and cancels in it
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
            # counts at once what the loop may be too busy to see
            signal.signal(number, _handler)
        return await work

    try:
        result = asyncio.run(run_cancellable())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        _handler.cancels = False
        work.close()
        for number, handler in previous.items():
            signal.signal(number, handler)
    if _handler.stopping and not stopping_before:
        raise KeyboardInterrupt
    return result
