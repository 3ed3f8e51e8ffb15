"""Keeps reply caches and a record of the user's own folders outside of working folders, which may be a stranger's."""

from __future__ import annotations

import os
import secrets
from hashlib import sha256
from pathlib import Path

from agent.datasets.sources import open_regular
from agent.errors import RunFolderError
from agent.runs.store.files import MADE, reading, replacing, writing
from agent.sandbox.folders import get_user_cache

_LENGTH = 32


def get_default_cache() -> Path:
    """Return the path of the reply cache for commands in the working folder."""
    return _get_path("replies", Path()).with_suffix(".sqlite")


def check_made(folder: Path) -> bool:
    """Return whether this user made a folder with `record_made`. Return False if it has no files or only hidden ones.

    Raises:
        RunFolderError: the folder has content, and this user did not make it.
    """
    mark = _read(folder / MADE)
    if mark and mark == _read(_get_path("folders", folder)):
        return True
    with reading(folder):
        if not os.path.lexists(folder) or all(entry.name.startswith(".") for entry in folder.iterdir()):
            return False
    raise RunFolderError(
        f"{folder}: is not recorded as your own. Another user, another machine or an earlier version made it. "
        f"To continue it, pass -o {folder}. To start anew, pass another folder."
    )


def record_made(folder: Path) -> None:
    """Record that this user made a folder with a default name, unless it is recorded. Creates the folder.

    Raises:
        RunFolderError: see `check_made`.
        StorageError: the folder or the user's cache folder cannot be written.
    """
    if not check_made(folder):
        token = secrets.token_hex(_LENGTH // 2)
        for path in (_get_path("folders", folder), folder / MADE):
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as draft:
                draft.write_text(token, encoding="ascii")


def _get_path(kind: str, folder: Path) -> Path:
    return get_user_cache() / kind / sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:_LENGTH]


def _read(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read(_LENGTH + 1)
    except OSError:
        return b""
