"""Lists and removes the environments of a store; its source is sent to the containers that do so.

Standard library only, Python 3.8 and later; what uses it there is appended to it.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

LOCK, SIZE = ".lock.json", ".size"
_TRASH = ".trash"


def locks(store: Path) -> dict[str, list[str]]:
    """Return the lock of every published environment, by key."""
    found = {}
    for folder in store.iterdir():
        try:
            found[folder.name] = json.loads((folder / LOCK).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # no environment, or removed meanwhile
    return found


def listed(store: Path) -> dict[str, tuple[list[str], int, float]]:
    """Return lock, size in bytes and time of publication of every environment, by key."""
    found = {}
    for key, lock in locks(store).items():
        try:
            found[key] = (lock, _size(store / key), (store / key).stat().st_mtime)
        except (OSError, ValueError):
            continue
    return found


def _size(folder: Path) -> int:
    try:
        return int((folder / SIZE).read_text(encoding="utf-8"))
    except FileNotFoundError:  # built before sizes were written down
        return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


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
