"""How commands that annotate begin and how they are interrupted: input, folders, the way to go on."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

from agent.cli.console import Console
from agent.cli.run_options import RunOptions
from agent.cli.text import say
from agent.datasets import Dataset, parse_mapping, read_pairs
from agent.errors import BudgetExceeded, RunFolderError, RunStopped, UsageError
from agent.store.run_view import load_run
from agent.wording import counted


def read_input(pairs: Path, options: RunOptions, console: Console) -> Dataset:
    """Read the pairs, and tell what is odd about them.

    Raises:
        UsageError: the file or the mapping of its fields cannot be used.
    """
    mapping = None if options.field_map is None else parse_mapping(options.field_map)
    dataset = read_pairs(pairs, mapping=mapping, on_bad_line=options.on_bad_line, limit=options.limit)
    for note in dataset.notes:
        say(console, f"note: {note}")
    if dataset.bad_lines:
        first = dataset.bad_lines[0]
        say(
            console,
            f"skipped {counted(len(dataset.bad_lines), 'bad line')}, the first: line {first.line}: {first.cause}",
        )
    return dataset


def default_folder(pairs: Path, *parts: str) -> Path:
    """Return a folder in `runs/` named after the file of pairs and whatever else tells runs apart."""
    stem = re.sub(r"\.jsonl?(\.gz)?$", "", pairs.name)
    name = "-".join([stem, *parts])
    return Path("runs") / (re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._") or "run")


def check_writable(out: Path, cache: Path | None) -> None:
    """Make the folders that will be written to, before anything is spent.

    Raises:
        UsageError: one is a file, or cannot be made; or what is to be the cache is no file.
    """
    if cache is not None and cache.exists() and not cache.is_file():
        what = "a folder" if cache.is_dir() else "no file"
        raise UsageError(f"{cache}: is {what}; give a file that keeps replies (--cache), or the name of a new one")
    for option, folder in (("-o", out), ("--cache", None if cache is None else cache.parent)):
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise UsageError(f"{folder}: is a file; give a folder ({option})") from error
        except OSError as error:
            raise UsageError(f"{option}: the folder {folder} cannot be made: {error.strerror}") from error


def finished(folder: Path, rounds: int) -> str:
    """Return what of a run is finished, as in `3 pairs`, in rounds `5 annotations`; nothing where there is no run."""
    try:
        with load_run(folder) as view:
            count = len(view.index.done())
    except RunFolderError:
        return ""
    return counted(count, "pair" if rounds == 1 else "annotation") if count else ""


def tell_how_to_go_on(console: Console, error: RunStopped | None, kept: str) -> None:
    """Say why it ended early (None: interrupted), what is kept (or nothing), and the command that goes on."""
    say(console, "Interrupted." if error is None else f"Stopped: {error}")
    if kept:
        say(console, kept)
    change = f" {error.with_what}" if isinstance(error, BudgetExceeded) else ""
    say(console, f"The same command{change} goes on from there:\n  {shlex.join(['agent', *sys.argv[1:]])}")
