"""What the system says when a file cannot be written or read, in words for the user."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.errors import RunFolderError, StorageError

_CAUSES = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file has reached the size limit of this process (ulimit -f)",
    errno.EIO: "the disk reports an input/output error",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "this user may not write there",
    errno.EPERM: "this user may not write there",
}
_SQLITE_CAUSES = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk is full or reports an error",
    sqlite3.SQLITE_READONLY: "the file is read-only",
    sqlite3.SQLITE_CANTOPEN: "the file or its folder cannot be opened for writing",
    sqlite3.SQLITE_PERM: "this user may not write there",
    sqlite3.SQLITE_BUSY: "another process keeps it locked",
    sqlite3.SQLITE_LOCKED: "another process keeps it locked",
}
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_GO_ON = "Nothing that was finished is lost: mend that and give the same command again."


def write_failure(path: Path, error: OSError) -> StorageError:
    """Return the error for a failed write: what, where, and how to go on."""
    cause = _CAUSES.get(error.errno or 0) or error.strerror or str(error)
    return StorageError(f"{path}: cannot be written: {cause}. {_GO_ON}")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn system errors into `StorageError`."""
    try:
        yield
    except OSError as error:
        raise write_failure(path, error) from error


@contextmanager
def using_database(path: Path, remedy: str) -> Iterator[None]:
    """Turn errors of SQLite into `StorageError` (cannot be written) or `RunFolderError` (damaged).

    `remedy` says what to do with a damaged file. Other errors are mistakes of ours and pass.
    """
    try:
        yield
    except sqlite3.Error as error:
        # The low byte is the error's kind, the rest its detail.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _DAMAGED:
            raise RunFolderError(f"{path}: is damaged or not a database ({error}). {remedy}") from error
        if code in _SQLITE_CAUSES:
            cause = f"{_SQLITE_CAUSES[code]} ({error})"
            raise StorageError(f"{path}: cannot be written: {cause}. {_GO_ON}") from error
        raise
