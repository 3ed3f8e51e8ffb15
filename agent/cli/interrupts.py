"""Handles Ctrl-C and SIGTERM. The first signal stops the command and cleans up; the second signal exits at once."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from agent.cli.exit_codes import STOPPED

INTERRUPTED = b"Interrupted.\n"
_STOPPING = b"Stopping. Press Ctrl-C again to exit without cleaning up.\n"
_RETRY_SECONDS = 0.01
T = TypeVar("T")


class _Handler:
    """A handler for SIGINT and SIGTERM. It works even while the event loop is blocked.

    If `cancels` is true, the first signal is left to the event loop or `defer_signals`. Otherwise, that signal raises
    KeyboardInterrupt.
    """

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
    """Raise KeyboardInterrupt as soon as no import is in progress. An import might swallow it and print a traceback."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            signal.setitimer(signal.ITIMER_REAL, _RETRY_SECONDS)
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def _reraise_swallowed(unraisable: sys.UnraisableHookArgs) -> None:
    """Raise a KeyboardInterrupt again if a finalizer swallowed it."""
    if unraisable.exc_type is KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, _RETRY_SECONDS)
    else:
        sys.__unraisablehook__(unraisable)


def _find_handled_signals() -> list[signal.Signals]:
    """Return SIGINT and SIGTERM, except those that this process was started to ignore, for example by nohup."""
    return [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) is not signal.SIG_IGN]


def install() -> None:
    """Install the signal handlers. Outside `run_interruptible`, the first signal raises KeyboardInterrupt."""
    signal.signal(signal.SIGALRM, _raise_after_import)
    sys.unraisablehook = _reraise_swallowed
    for number in _find_handled_signals():
        signal.signal(number, _handler)
        # at exit, Python restores the default handler, which would kill the process
        atexit.register(signal.signal, number, signal.SIG_IGN)


def finish() -> None:
    """Make the next signal end the process at once, because nothing is left to clean up."""
    _handler.stopping = True
    signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def defer_signals() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a signal arrived. Inside the block, the first signal does nothing else."""
    _handler.cancels = True
    try:
        yield lambda: _handler.stopping
    finally:
        _handler.cancels = False


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a new event loop and return its result. The first signal cancels the coroutine.

    Raises:
        KeyboardInterrupt: a signal arrived, and the coroutine has cleaned up.
    """
    import asyncio  # slow to import, and not every command needs it

    numbers, stopping_before = _find_handled_signals(), _handler.stopping
    previous = {number: signal.getsignal(number) for number in numbers}

    async def run_cancellable() -> T:
        task = asyncio.current_task()
        assert task is not None
        for number in numbers:
            # cancels the task, and wakes the loop even if another thread receives the signal
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
            # notices the signal at once, even if the loop is blocked
            signal.signal(number, _handler)
        if _handler.stopping and not stopping_before:
            raise asyncio.CancelledError
        return await work

    try:
        # a KeyboardInterrupt while asyncio creates the loop would leave half a loop, whose finalizer prints a traceback
        _handler.cancels = True
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
