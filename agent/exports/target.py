"""Where an export goes: written beside, then renamed; nothing of anybody else's is replaced."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.errors import UsageError
from agent.store import files
from agent.store.files import replacing, writing

_OF_A_RUN = files.PROTECTED | {files.LABELS}


@contextmanager
def open_target(target: Path, entries: frozenset[str], *, force: bool) -> Iterator[Path]:
    """Give a path beside `target` to write to, for a folder of these files, or for a file where there are none.

    It takes the place of `target` once it is whole; where that fails, nothing is left.

    Raises:
        UsageError: something is there already and is not to be replaced, or there is no folder to put it in.
        StorageError: it cannot be written; what was there is as before.
    """
    check_target(target, entries, force=force)
    target = target.absolute()
    if not entries:
        with replacing(target) as draft:
            yield draft
        return
    with writing(target):
        draft, old = (target.with_name(f".{target.name[:40]}.{secrets.token_hex(8)}.{end}") for end in ("tmp", "old"))
        draft.mkdir()
        try:
            yield draft
            if target.exists():
                target.rename(old)
            try:
                draft.rename(target)
            except OSError:
                old.rename(target)
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def check_target(target: Path, entries: frozenset[str], *, force: bool) -> None:
    """Refuse a target at which no export may be written.

    Raises:
        UsageError: it says why, and what to do.
    """
    if target.name in _OF_A_RUN:
        raise UsageError(f"{target}: is the name of a file that runs consist of; give another one (-o)")
    if not target.parent.is_dir():
        raise UsageError(f"{target}: there is no folder {target.parent}; make it, or give another path (-o)")
    if not target.exists() and not target.is_symlink():
        return
    if not force:
        raise UsageError(f"{target}: is there already; give another path (-o), or replace it with --force")
    if target.is_symlink() or not (target.is_dir() if entries else target.is_file()):
        what = "folder" if entries else "file"
        raise UsageError(f"{target}: is there, and no {what} to replace; remove it, or give another path (-o)")
    there = {str(path.relative_to(target)) for path in target.rglob("*") if not path.is_dir()} if entries else set()
    others = sorted(there - entries)
    if others:
        raise UsageError(
            f"{target}: holds {others[0]!r}, which is of no such export; remove it, or give another path (-o)"
        )
