"""Finishes, lists and removes the environments of a store; its source is sent to the sandboxes that do so.

Standard library only, Python 3.8 and later; what uses it there is appended to it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

LOCK, SIZE = ".lock.json", ".size"
_TRASH, _STAGING = ".trash", ".staging"
_COMPILE = ["-I", "-m", "compileall", "-qq", "--invalidation-mode", "unchecked-hash"]
_COMPILE_SECONDS = 600.0
_STALE = 24 * 3600.0


def finish(tree: Path, lock: list[str]) -> None:
    """Byte-compile an installed tree, and write down its size and, last, its lock."""
    os.umask(0o022)
    with suppress(subprocess.TimeoutExpired):
        # what cannot be compiled, or breaks the compiler, may still be of use: its importer gets the error
        subprocess.run(
            [sys.executable, *_COMPILE, str(tree)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_COMPILE_SECONDS,
            check=False,
        )
    for name in (SIZE, LOCK):
        _make_way(tree / name)
    size = sum(path.lstat().st_blocks * 512 for path in tree.rglob("*"))
    (tree / SIZE).write_text(str(size), encoding="utf-8")
    (tree / LOCK).write_text(json.dumps(lock), encoding="utf-8")


def publish(store: Path, tree: Path, key: str) -> None:
    """Move a finished tree to its place in one step; one that was published meanwhile is left as it is."""
    try:
        tree.rename(store / key)
    except OSError:
        if not (store / key / LOCK).is_file():
            raise
    shutil.rmtree(tree.parent, ignore_errors=True)
    for left in (store / _STAGING).glob("*"):
        if left.stat().st_mtime < time.time() - _STALE:
            shutil.rmtree(left, ignore_errors=True)


def read_locks(store: Path) -> dict[str, list[str]]:
    """Return the lock of every published environment, by key."""
    by_key = {}
    for folder in store.iterdir():
        try:
            by_key[folder.name] = json.loads((folder / LOCK).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # no environment, or removed meanwhile
    return by_key


def list_environments(store: Path) -> dict[str, tuple[list[str], int, float]]:
    """Return lock, size in bytes and time of publication of every environment, by key."""
    by_key = {}
    for key, lock in read_locks(store).items():
        try:
            size = int((store / key / SIZE).read_text(encoding="utf-8"))
            by_key[key] = (lock, size, (store / key).stat().st_mtime)
        except (OSError, ValueError):
            continue
    return by_key


def remove(store: Path, keys: list[str]) -> None:
    """Remove environments, and what an earlier removal left that did not come to its end."""
    trash = store / _TRASH
    trash.mkdir(exist_ok=True)
    for key in keys:
        try:
            # in one step: nobody is to import from half an environment
            (store / key).rename(trash / f"{key}-{os.urandom(4).hex()}")
        except FileNotFoundError:
            continue
    for left in trash.iterdir():
        shutil.rmtree(left, ignore_errors=True)


def _make_way(path: Path) -> None:
    """Remove what a wheel put in the place of a file of ours."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
