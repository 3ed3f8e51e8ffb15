"""Shared steps of commands that annotate: checks before the start, and messages after an early stop."""

from __future__ import annotations

import logging
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from agent.cli.exit_codes import STOPPED
from agent.cli.text import Console, print_text
from agent.corpus.output import get_removed_path
from agent.datasets.formats import strip_suffixes
from agent.datasets.reading import Dataset
from agent.errors import RunFolderError, RunStopped, UsageError
from agent.exports.target import check_target
from agent.runs.store.files import RESUME_HINT
from agent.runs.store.run_view import load_run
from agent.runs.store.user_folder import check_made, record_made
from agent.text import plural

_log = logging.getLogger(__name__)


def print_input_notes(dataset: Dataset, console: Console) -> None:
    """Print notes on the input and on skipped lines."""
    for note in dataset.notes:
        print_text(console, f"note: {note}")
    if dataset.bad_lines:
        print_text(console, f"skipped {plural(len(dataset.bad_lines), 'bad line')}; first: {dataset.bad_lines[0]}")


def choose_folder(pairs: Dataset, *parts: str) -> Path:
    """Return the path of a folder in `runs/`, named after the first file of pairs and `parts`.

    Raises:
        RunFolderError: the folder exists, and this user did not make it.
    """
    name = "-".join([strip_suffixes(pairs.paths[0]), *parts])
    folder = Path("runs") / (re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._") or "run")
    check_made(folder)
    return folder


def check_writable(out: Path, cache: object, *, named: bool = True) -> None:
    """Create the output folders before any model call.

    `cache` is checked if it is a path. Unless the user `named` the folder `out`, it is recorded as made by this user.

    Raises:
        UsageError: an output folder is a file or cannot be created, or the cache is not a regular file.
        RunFolderError: `out` was not named, and another user made it.
    """
    folders = {"-o": out}
    if isinstance(cache, Path):
        folders["--cache"] = cache.parent
        if cache.exists() and not cache.is_file():
            kind = "a folder" if cache.is_dir() else "not a regular file"
            raise UsageError(f"--cache: {cache} is {kind}. Pass an existing cache file or a new file name.")
    for option, folder in folders.items():
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = "is a file" if folder.is_file() else f"cannot be created ({error.strerror})"
            raise UsageError(f"{option}: {folder} {problem}. Pass another folder.") from error
    if not named:
        record_made(out)


def check_corpus_output(out: Path, inputs: Iterable[Path], *, force: bool) -> None:
    """Create the folder for the files of `agent corpus`, and check that both files may be written.

    Raises:
        UsageError: the name does not end in .jsonl, a file exists and must not be replaced, or is an input or in an
            input folder, or the folder cannot be created or written.
    """
    if out.suffix != ".jsonl":
        raise UsageError(
            f"-o: {out} does not end in .jsonl. The output is a JSON Lines file, such as {out.stem}.jsonl."
        )
    check_writable(out.parent, None)
    if not os.access(out.parent, os.W_OK):
        raise UsageError(f"-o: {out.parent} is not writable. Choose a file in another folder.")
    resolved = {path.resolve() for path in inputs}
    for target in (out, get_removed_path(out)):
        if resolved & {target.resolve(), *target.resolve().parents}:
            raise UsageError(f"-o: {target} is an input file, or is in an input folder. Choose another path.")
        check_target(target, frozenset(), force=force)


def describe_finished(out: Path, rounds: int) -> str:
    """Describe the finished part of a run, for example as `3 pairs`, or `5 annotations` if there are several rounds.

    Return an empty string if there is no run or nothing is finished.
    """
    try:
        with load_run(out) as view:
            count = len(view.index)
    except RunFolderError:
        return ""
    return plural(count, "pair" if rounds == 1 else "annotation") if count else ""


def print_stop(console: Console, error: KeyboardInterrupt | RunStopped, stored: str) -> None:
    """Print why a command stopped early, the `stored` text unless it is empty, and the command that resumes the run."""
    cause = f"Stopped: {error}" if isinstance(error, RunStopped) else "Interrupted."
    print_text(console, cause.removesuffix(f" {RESUME_HINT}"))
    _log.debug("the run stopped", exc_info=error)
    if stored:
        print_text(console, stored)
    change = f" {error.hint}" if isinstance(error, RunStopped) and error.hint else ""
    print_text(console, f"To resume, run the same command{change}:\n  {shlex.join(['agent', *sys.argv[1:]])}")


@contextmanager
def stoppable(console: Console, stored: str | Callable[[], str] = "") -> Iterator[None]:
    """Exit with `print_stop` if the block ends early. A function `stored` is called only then.

    Raises:
        typer.Exit: a KeyboardInterrupt or RunStopped ended the block. The exit code is 3 (stopped).
    """
    try:
        yield
    except (KeyboardInterrupt, RunStopped) as error:
        print_stop(console, error, stored if isinstance(stored, str) else stored())
        raise typer.Exit(STOPPED) from error
