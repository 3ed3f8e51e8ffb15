"""How commands that annotate begin, and how whatever they started is ended when they are interrupted."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shlex
import signal
import socket
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import typer

from agent.cli import STOPPED
from agent.cli.text import Console, say
from agent.datasets import Dataset
from agent.datasets.formats import stem
from agent.errors import RunFolderError, RunStopped, UsageError
from agent.store.run_view import load_run
from agent.wording import counted

T = TypeVar("T")
_log = logging.getLogger(__name__)
_ENDING = b"What is at work is being ended. Once more, and it is left as it is.\n"


def print_oddities(dataset: Dataset, console: Console) -> None:
    """Print what is odd about the input."""
    for note in dataset.notes:
        say(console, f"note: {note}")
    if dataset.bad_lines:
        skipped = counted(len(dataset.bad_lines), "bad line")
        say(console, f"skipped {skipped}, the first: {dataset.bad_lines[0]}")


def default_folder(pairs: Dataset, *parts: str) -> Path:
    """Return a folder in `runs/` named after the first file of pairs and whatever else distinguishes runs."""
    name = "-".join([stem(pairs.paths[0]), *parts])
    return Path("runs") / (re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._") or "run")


def check_writable(out: Path, cache: Path | None) -> None:
    """Make the folders that will be written to, before anything is spent.

    Raises:
        UsageError: one is a file, or cannot be made; or what is to be the cache is no file.
    """
    if cache is not None and cache.exists() and not cache.is_file():
        what = "a folder" if cache.is_dir() else "no file"
        raise UsageError(f"{cache}: is {what}; give a file that keeps replies (--cache), or the name of a new one")
    _make("-o", out)
    if cache is not None:
        _make("--cache", cache.parent)


def _make(option: str, out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise UsageError(f"{out}: is a file; give a folder ({option})") from error
    except OSError as error:
        raise UsageError(f"{option}: the folder {out} cannot be made: {error.strerror}") from error


def finished(out: Path, rounds: int) -> str:
    """Return what of a run is finished, as in `3 pairs`, in rounds `5 annotations`; nothing where there is no run."""
    try:
        with load_run(out) as view:
            count = len(view.index)
    except RunFolderError:
        return ""
    return counted(count, "pair" if rounds == 1 else "annotation") if count else ""


def print_stop(console: Console, error: KeyboardInterrupt | RunStopped, kept: str) -> None:
    """Say why a command stopped early, what is kept (may be empty), and the command that resumes."""
    say(console, f"Stopped: {error}" if isinstance(error, RunStopped) else "Interrupted.")
    _log.debug("the run stopped", exc_info=error)
    if kept:
        say(console, kept)
    change = f" {error.hint}" if isinstance(error, RunStopped) and error.hint else ""
    say(console, f"The same command{change} goes on from there:\n  {shlex.join(['agent', *sys.argv[1:]])}")


def explain_stop(console: Console, error: KeyboardInterrupt | RunStopped, kept: str) -> NoReturn:
    """Print as `print_stop` prints, and end the command.

    Raises:
        typer.Exit: with the exit code of a run that stopped.
    """
    print_stop(console, error, kept)
    raise typer.Exit(STOPPED) from error


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
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
