"""Writes an export to a temporary path and then moves it to the target path."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.errors import UsageError
from agent.runs.store import files
from agent.runs.store.files import open_draft, replacing

_RUN_FILES = files.PROTECTED | {files.LABELS}


@contextmanager
def open_target(target: Path, entries: frozenset[str], *, force: bool) -> Iterator[Path]:
    """Yield a temporary path to write to, and move it to `target` when the block succeeds.

    If `entries` is not empty, the temporary path is an empty folder. Otherwise, it is the path of a single file.
    If the block fails, the temporary path is removed and `target` is unchanged.

    Raises:
        UsageError: `target` exists and must not be replaced.
        StorageError: `target` cannot be written.
    """
    check_target(target, entries, force=force)
    target = target.absolute()
    if not entries:
        with replacing(target) as draft:
            yield draft
        return
    with open_draft(target, is_folder=True) as draft:
        old = draft.with_suffix(".old")
        yield draft
        if target.exists():
            target.rename(old)
        try:
            draft.rename(target)
        except OSError:
            old.rename(target)
            raise
        files.remove(old)


def check_target(target: Path, entries: frozenset[str], *, force: bool) -> None:
    """Check that an export may be written to `target`, and create its parent folders.

    With `force`, an existing file may be replaced. An existing folder may be replaced if it contains only the files in
    `entries`.

    Raises:
        UsageError: the name is reserved, a parent folder cannot be created, or the target must not be replaced.
    """
    if target.name in _RUN_FILES:
        raise UsageError(f"{target}: this file name is reserved for run folders. Choose another path (-o).")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"folder {target.parent} cannot be created ({error.strerror})"
        raise UsageError(f"{target}: {problem}. Choose another path (-o).") from error
    if not target.exists() and not target.is_symlink():
        return
    if not force:
        raise UsageError(f"{target}: already exists. Choose another path (-o), or replace it with --force.")
    if target.is_symlink() or not (target.is_dir() if entries else target.is_file()):
        kind = "folder" if entries else "file"
        raise UsageError(f"{target}: exists and is not a {kind}. Remove it, or choose another path (-o).")
    present = {str(path.relative_to(target)) for path in target.rglob("*") if not path.is_dir()} if entries else set()
    extra = sorted(present - entries)
    if extra:
        raise UsageError(
            f"{target}: contains {extra[0]!r}, which is not part of an export. Remove this file, or choose "
            "another path (-o)."
        )
