"""How commands that annotate begin, and what they say when they stop early."""

from __future__ import annotations

import logging
import re
import shlex
import sys
from pathlib import Path
from typing import NoReturn

import typer

from agent.cli import STOPPED
from agent.cli.text import Console, print_text
from agent.datasets import Dataset
from agent.datasets.formats import strip_suffixes
from agent.errors import RunFolderError, RunStopped, UsageError
from agent.store.run_view import load_run
from agent.wording import plural

_log = logging.getLogger(__name__)


def print_input_notes(dataset: Dataset, console: Console) -> None:
    """Print what is odd about the input."""
    for note in dataset.notes:
        print_text(console, f"note: {note}")
    if dataset.bad_lines:
        print_text(console, f"skipped {plural(len(dataset.bad_lines), 'bad line')}, the first: {dataset.bad_lines[0]}")


def choose_folder(pairs: Dataset, *parts: str) -> Path:
    """Return a folder in `runs/` named after the first file of pairs and whatever else distinguishes runs."""
    name = "-".join([strip_suffixes(pairs.paths[0]), *parts])
    return Path("runs") / (re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._") or "run")


def check_writable(out: Path, cache: Path | None) -> None:
    """Make the folders that will be written to, before anything is spent.

    Raises:
        UsageError: one is a file, or cannot be made; or what is to be the cache is no file.
    """
    folders = {"-o": out}
    if cache is not None:
        folders["--cache"] = cache.parent
        if cache.exists() and not cache.is_file():
            what = "a folder" if cache.is_dir() else "no file"
            raise UsageError(f"{cache}: is {what}; give a file that keeps replies (--cache), or the name of a new one")
    for option, folder in folders.items():
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            what = "is a file" if folder.is_file() else f"cannot be made ({error.strerror})"
            raise UsageError(f"{option}: {folder} {what}. Pass another folder.") from error


def describe_finished(out: Path, rounds: int) -> str:
    """Return what of a run is finished, as in `3 pairs`, in rounds `5 annotations`; nothing where there is no run."""
    try:
        with load_run(out) as view:
            count = len(view.index)
    except RunFolderError:
        return ""
    return plural(count, "pair" if rounds == 1 else "annotation") if count else ""


def print_stop(console: Console, error: KeyboardInterrupt | RunStopped, kept: str) -> None:
    """Say why a command stopped early, what is kept (may be empty), and the command that resumes."""
    print_text(console, f"Stopped: {error}" if isinstance(error, RunStopped) else "Interrupted.")
    _log.debug("the run stopped", exc_info=error)
    if kept:
        print_text(console, kept)
    change = f" {error.hint}" if isinstance(error, RunStopped) and error.hint else ""
    print_text(console, f"The same command{change} goes on from there:\n  {shlex.join(['agent', *sys.argv[1:]])}")


def explain_stop(console: Console, error: KeyboardInterrupt | RunStopped, kept: str) -> NoReturn:
    """Print as `print_stop` prints, and end the command.

    Raises:
        typer.Exit: with the exit code of a run that stopped.
    """
    print_stop(console, error, kept)
    raise typer.Exit(STOPPED) from error
