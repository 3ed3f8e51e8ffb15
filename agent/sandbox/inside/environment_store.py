"""Finishes, lists and removes the environments of a store. The source is also sent to sandboxes.

Works on Python 3.8 and later with the standard library only. Callers append their own code to the source.
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
    """Byte-compile an installed tree and write its size and then its lock."""
    os.umask(0o022)
    with suppress(subprocess.TimeoutExpired):
        # modules that cannot be compiled are not an error here: importing them raises
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
    """Rename a finished tree to its key, unless another process published it meanwhile. Removes stale trees."""
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
    """Return the locks of all published environments by key."""
    by_key = {}
    for folder in store.iterdir():
        try:
            by_key[folder.name] = json.loads((folder / LOCK).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # not an environment, or removed meanwhile
    return by_key


def list_environments(store: Path) -> dict[str, tuple[list[str], int, float]]:
    """Return the lock, size in bytes and publication time of all environments by key."""
    by_key = {}
    for key, lock in read_locks(store).items():
        try:
            size = int((store / key / SIZE).read_text(encoding="utf-8"))
            by_key[key] = (lock, size, (store / key).stat().st_mtime)
        except (OSError, ValueError):
            continue
    return by_key


def remove(store: Path, keys: list[str]) -> None:
    """Remove environments, and the remains of interrupted removals."""
    trash = store / _TRASH
    trash.mkdir(exist_ok=True)
    for key in keys:
        try:
            # renamed first, so that no program imports from a half-removed environment
            (store / key).rename(trash / f"{key}-{os.urandom(4).hex()}")
        except FileNotFoundError:
            continue
    for folder in trash.iterdir():
        shutil.rmtree(folder, ignore_errors=True)


def _remove_path(path: Path) -> None:
    """Remove a file or folder of a wheel that has the name of one of the store's files."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
