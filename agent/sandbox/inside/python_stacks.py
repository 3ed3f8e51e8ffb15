"""Tells at a time-out where else a program stands than in its main thread; the fourth part of the Python harness.

The main thread's stack is faulthandler's, which works whatever the interpreter does; this here runs when the main
thread comes to it, as one that waits does. A program can write the same: it decides who is blamed for a hang, never
whether there was one.
"""

from __future__ import annotations

import gc
import os
import sys
import types
from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Line = tuple[str, int, str]

MAX_STACKS = 32
MAX_LINES = 40
NEXT = ("cr_await", "gi_yieldfrom", "ag_await")
FRAME = ("cr_frame", "gi_frame", "ag_frame")
ASYNC_GENERATOR_TYPE = types.AsyncGeneratorType


def stacks_teller(descriptor: int) -> Callable[..., None]:
    """Return a signal's handler that writes the stacks of the other threads and of pending tasks, as faulthandler does.

    It holds all that it uses, whatever a program changes meanwhile.
    """
    write, frames, own, modules = os.write, sys._current_frames, get_ident(), sys.modules

    def stacks() -> Iterator[list[Line]]:
        for thread, frame in frames().items():
            if thread != own:
                yield of_frame(frame)
        tasks = modules.get("asyncio.tasks")
        if tasks is not None:
            for task in tasks.all_tasks():
                yield of_awaiting(task.get_coro())

    def tell(*_: Any) -> None:
        try:
            for _number, lines in zip(range(MAX_STACKS), stacks()):
                told = "".join('  File "%s", line %d in %s\n' % line for line in lines)
                write(descriptor, ("Other (most recent call first):\n" + told).encode("utf-8", "backslashreplace"))
        except BaseException:
            return  # no loop runs, or the program has changed what is looked at: the main thread's stack is told

    return tell


def of_frame(frame: Any) -> list[Line]:
    """Return the innermost lines of a thread, the last call first."""
    lines: list[Line] = []
    while frame is not None and len(lines) < MAX_LINES:
        lines.append((frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name))
        frame = frame.f_back
    return lines


def of_awaiting(each: Any) -> list[Line]:
    """Return the lines in which a coroutine and whatever it awaits stand, the last call first."""
    lines: list[Line] = []
    while each is not None and len(lines) < MAX_LINES:
        frame = first_of(each, FRAME)
        if frame is not None:
            lines.append((frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name))
            each = first_of(each, NEXT)
        else:  # what steps through an async generator names it nowhere
            each = next((one for one in gc.get_referents(each) if isinstance(one, ASYNC_GENERATOR_TYPE)), None)
    return lines[::-1]


def first_of(owner: Any, names: tuple[str, ...]) -> Any:
    return next((found for name in names if (found := getattr(owner, name, None)) is not None), None)
