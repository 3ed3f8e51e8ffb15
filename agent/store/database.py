"""Opens the SQLite files of a run: write-ahead log, a schema version, several processes at once."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.errors import RunFolderError, StorageError
from agent.store.files import GO_ON, writing

BUSY_SECONDS = 15.0
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


def open_database(path: Path, *, application_id: int, version: int, tables: str, remedy: str) -> sqlite3.Connection:
    """Open a database in autocommit mode, or create it with `tables` (`;` between statements).

    `application_id` and `version` are kept in the file's header. Usable from any one thread at a time.

    Raises:
        RunFolderError: the file is damaged, of another program, or of a newer version.
        StorageError: it cannot be written.
    """
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    with using_database(path, remedy):
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            _use_write_ahead_log(connection)
            # A crash of the machine may lose the last moments, never the file; a killed process loses nothing.
            connection.execute("PRAGMA synchronous = NORMAL")
            _create_or_check(connection, path, application_id, version, tables)
        except BaseException:
            connection.close()
            raise
    return connection


def open_read_only(path: Path, *, application_id: int, version: int, remedy: str) -> sqlite3.Connection:
    """Open an existing database for reading, beside a writer or on a read-only disk.

    Raises:
        RunFolderError: the file is missing, damaged, of another program, or of a newer version.
        StorageError: it cannot be opened.
    """
    if not path.is_file():
        raise RunFolderError(f"{path}: no such file")
    uri = path.resolve().as_uri()
    with using_database(path, remedy):
        try:
            return _checked(f"{uri}?mode=ro", path, application_id, version)
        except sqlite3.OperationalError:
            # A read-only disk has no place for the log's index; without a log there is nothing to index.
            log = path.with_name(path.name + "-wal")
            if log.exists() and log.stat().st_size:
                raise
            return _checked(f"{uri}?mode=ro&immutable=1", path, application_id, version)


def _checked(uri: str, path: Path, application_id: int, version: int) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        _check(connection, path, application_id, version)
    except BaseException:
        connection.close()
        raise
    return connection


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            # Two processes that create the file together: SQLite does not wait here by itself.
            if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _create_or_check(
    connection: sqlite3.Connection, path: Path, application_id: int, version: int, tables: str
) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            for statement in tables.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {application_id}")
            connection.execute(f"PRAGMA user_version = {version}")
        _check(connection, path, application_id, version)
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _check(connection: sqlite3.Connection, path: Path, application_id: int, version: int) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != application_id:
        raise RunFolderError(f"{path}: is a database of something else; give another path")
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found != version:
        raise RunFolderError(
            f"{path}: has format {found}, this version reads format {version}; use the one that made it"
        )


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
            raise StorageError(f"{path}: cannot be written: {cause}. {GO_ON}") from error
        raise
