"""Opens what this process writes to in a run's folder: the file itself, never what a link leads to."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from agent.datasets.regular import check_regular
from agent.errors import RunFolderError
from agent.store.failures import writing

_NOT_OURS = (errno.ELOOP, errno.ENXIO, errno.EINVAL)
_REFUSED = (
    "is a link, or no ordinary file, and nothing is written through it; move it away, or put the file itself there"
)


def open_own(path: Path, flags: int = 0) -> int:
    """Open a file for reading and writing, made where there is none, and return its descriptor.

    Raises:
        RunFolderError: it is a link, or something else than a file.
        StorageError: it cannot be opened for writing.
    """
    own = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with writing(path):
        try:
            descriptor = os.open(path, own | flags, 0o644)
        except OSError as error:
            raise _refused(path, error) from None
        try:
            check_regular(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise _refused(path, error) from None
    return descriptor


def check_own(path: Path) -> None:
    """Refuse what SQLite is about to open, unless it is a file or not there.

    Raises:
        RunFolderError: it is a link, or something else than a file.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise RunFolderError(f"{path}: {_REFUSED}")


def _refused(path: Path, error: OSError) -> Exception:
    return RunFolderError(f"{path}: {_REFUSED}") if error.errno in _NOT_OURS else error
