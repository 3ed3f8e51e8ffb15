"""Opens ordinary files only: a pipe or a socket in a folder of somebody else's would be waited for without end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO

NO_FILE = "it is a pipe, a socket or a device"


def open_regular(path: Path) -> IO[bytes]:
    """Open an ordinary file, or a link to one, for reading bytes.

    Raises:
        OSError: it cannot be opened, or is something else.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise (OSError(error.errno, NO_FILE) if error.errno == errno.ENXIO else error) from None
    try:
        check_regular(descriptor)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path) -> bytes:
    """Return what an ordinary file, or a link to one, holds.

    Raises:
        OSError: it cannot be read, or is something else.
    """
    with open_regular(path) as file:
        return file.read()


def check_regular(descriptor: int) -> None:
    """Refuse what is no ordinary file.

    Raises:
        OSError: it is something else.
    """
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, NO_FILE)
