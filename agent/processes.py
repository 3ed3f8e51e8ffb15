"""Maps a function over a stream in several processes."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TypeVar

from agent.errors import RunStopped

_TASKS_PER_JOB = 4
Item = TypeVar("Item")
Result = TypeVar("Result")


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_in_processes(
    function: Callable[[Item], Result], items: Iterable[Item], jobs: int
) -> Generator[Result, None, None]:
    """Iterate over the results in the order of the items. Reads only a few items ahead.

    `function` must be a function of a module, and items and results must be picklable. If `jobs` is 1, no process is
    started. The processes end when the iterator is closed, and also if this process is killed.

    Raises:
        RunStopped: a process was killed.
    """
    if jobs == 1:
        yield from map(function, items)
        return
    pending = deque[Future[Result]]()
    reader, writer = Pipe(duplex=False)
    executor = ProcessPoolExecutor(jobs, initializer=_prepare_process, initargs=(reader, writer))
    try:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        executor.submit(int)  # starts the processes, which inherit the mask
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for item in items:
            pending.append(executor.submit(function, item))
            if len(pending) == _TASKS_PER_JOB * jobs:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        cause = "a process was killed, probably because the machine is short of memory"
        raise RunStopped(cause, "with fewer processes (--jobs)") from error
    finally:
        writer.close()  # ends the processes, even if they are busy
        executor.shutdown(cancel_futures=True)


def _prepare_process(reader: Connection, writer: Connection) -> None:
    writer.close()  # the parent has the only copy, which is closed when the parent exits
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes, but the parent handles it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_wait_and_exit, args=(reader,), daemon=True).start()


def _wait_and_exit(reader: Connection) -> None:
    reader.poll(None)
    os._exit(1)
