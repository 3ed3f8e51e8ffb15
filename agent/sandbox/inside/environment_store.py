"""Finishes, publishes, lists and removes environments in a store. This source is also sent to sandboxes.

It works on Python 3.8 and later and needs only the standard library. Callers append their own code to the source.
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
    """Byte-compile an installed tree, write its size, and finally write its lock."""
    os.umask(0o022)
    with suppress(subprocess.TimeoutExpired):
        # ignore modules that cannot be compiled, because importing them raises an exception
        subprocess.run(
            [sys.executable, *_COMPILE, str(tree)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_COMPILE_SECONDS,
            check=False,
        )
    for name in (SIZE, LOCK):
        _remove_path(tree / name)
    size = sum(path.lstat().st_blocks * 512 for path in tree.rglob("*"))
    (tree / SIZE).write_text(str(size), encoding="utf-8")
    (tree / LOCK).write_text(json.dumps(lock), encoding="utf-8")


def publish(store: Path, tree: Path, key: str) -> None:
    """Move a finished tree into the store as `key`, unless another process has already done so. Removes stale trees."""
    try:
        tree.rename(store / key)
    except OSError:
        if not (store / key / LOCK).is_file():
            raise
    shutil.rmtree(tree.parent, ignore_errors=True)
    for folder in (store / _STAGING).glob("*"):
        if folder.stat().st_mtime < time.time() - _STALE:
            shutil.rmtree(folder, ignore_errors=True)


def read_locks(store: Path) -> dict[str, list[str]]:
    """Return the locks of all published environments, keyed by environment key."""
    by_key = {}
    for folder in store.iterdir():
        try:
            by_key[folder.name] = json.loads((folder / LOCK).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # not an environment, or another process has removed it
    return by_key


def list_environments(store: Path) -> dict[str, tuple[list[str], int, float]]:
    """Return the lock, the size in bytes and the publication time of each environment, keyed by environment key."""
    by_key = {}
    for key, lock in read_locks(store).items():
        try:
            size = int((store / key / SIZE).read_text(encoding="utf-8"))
            by_key[key] = (lock, size, (store / key).stat().st_mtime)
        except (OSError, ValueError):
            continue
    return by_key


def remove(store: Path, keys: list[str]) -> None:
    """Remove environments. Also finishes interrupted removals."""
    trash = store / _TRASH
    trash.mkdir(exist_ok=True)
    for key in keys:
        try:
            # rename the folder first, so that no program imports from a partially removed environment
            (store / key).rename(trash / f"{key}-{os.urandom(4).hex()}")
        except FileNotFoundError:
            continue
    for folder in trash.iterdir():
        shutil.rmtree(folder, ignore_errors=True)


def _remove_path(path: Path) -> None:
    """Remove a file or folder that a wheel installed under the name of one of the store's own files."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
