"""SQLite files that concurrent processes can use (with a write-ahead log). Errors are translated for users."""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Self

from agent.errors import RunFolderError, StorageError
from agent.runs.store.files import RESUME_HINT, sync_to_disk, writing
from agent.temp_database import MAX_VALUE_BYTES, connect

MAX_TEXT_BYTES = 20 << 20
"""Maximum size of a compressed text, in bytes. Parsed JSON can need thirty times the memory of its text."""
_BUSY_SECONDS = 15.0
_CAUSES = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk is full or reports an error",
    sqlite3.SQLITE_READONLY: "the file is read-only",
    sqlite3.SQLITE_CANTOPEN: "the file or its folder cannot be opened for writing",
    sqlite3.SQLITE_PERM: "permission denied",
    sqlite3.SQLITE_BUSY: "it is locked by another process",
    sqlite3.SQLITE_LOCKED: "it is locked by another process",
}
_DAMAGED = {
    sqlite3.SQLITE_CORRUPT: "is damaged or not a database",
    sqlite3.SQLITE_NOTADB: "is damaged or not a database",
    sqlite3.SQLITE_TOOBIG: f"contains a value larger than {MAX_VALUE_BYTES >> 20} MB",
}


class Database:
    """An SQLite file, usable as a context manager.

    Subclasses set `tables` (statements separated by `;`) and `application_id`.

    `remedy` tells the user what to do with a damaged file. Only one thread at a time may use an instance.

    Raises (constructor and methods):
        RunFolderError: the file is damaged or belongs to another program, or is missing (if opened read-only).
        StorageError: the file cannot be written.
    """

    application_id: ClassVar[int]
    tables: ClassVar[str]
    remedy: ClassVar[str]

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        if not read_only:
            with writing(path.parent):
                path.parent.mkdir(parents=True, exist_ok=True)
        elif not path.is_file():
            raise RunFolderError(f"{path}: no such file")
        with self.translate_errors():
            self._connection = self._open_read_only() if read_only else self._open(path, create=True)

    def close(self) -> None:
        """Close the file. Calling it again does nothing."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sync(self) -> None:
        """Sync the write-ahead log to disk, including the commits of other processes.

        Raises:
            StorageError: the disk reports an error.
        """
        with writing(self.path):
            # If there is no log, all data is in the database file, which SQLite itself syncs.
            with suppress(FileNotFoundError):
                sync_to_disk(self.path.with_name(f"{self.path.name}-wal"))
            sync_to_disk(self.path.parent)

    def execute(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """Execute a statement in autocommit mode and return its rows."""
        with self.translate_errors():
            return self._connection.execute(statement, values).fetchall()

    def iterate(self, statement: str, values: Sequence[object] = ()) -> Iterator[Any]:
        """Iterate over the rows of a query without loading them all."""
        with self.translate_errors():
            yield from self._connection.execute(statement, values)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection in a transaction. Roll back if the block raises an exception."""
        with self.translate_errors(), self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Translate SQLite errors into `RunFolderError` and `StorageError`."""
        try:
            yield
        except sqlite3.Error as error:
            code = _get_code(error)
            if code in _DAMAGED:
                raise RunFolderError(f"{self.path}: {_DAMAGED[code]} ({error}). {self.remedy}") from error
            if code in _CAUSES:
                raise StorageError(
                    f"{self.path}: cannot be written: {_CAUSES[code]} ({error}). {RESUME_HINT}"
                ) from error
            raise  # a bug

    def _open_read_only(self) -> sqlite3.Connection:
        uri = self.path.resolve().as_uri()
        try:
            return self._open(f"{uri}?mode=ro")
        except sqlite3.OperationalError:
            # On a read-only disk, SQLite cannot create an index for the log. An empty log does not need one.
            log = self.path.with_name(self.path.name + "-wal")
            if log.exists() and log.stat().st_size:
                raise
            return self._open(f"{uri}?mode=ro&immutable=1")

    def _open(self, place: Path | str, *, create: bool = False) -> sqlite3.Connection:
        connection = connect(place, uri=not create, timeout=_BUSY_SECONDS)
        try:
            if create:
                _enable_write_ahead_log(connection)
                # If the machine crashes, at most the commits since the last `sync` are lost. If the process is killed,
                # nothing is lost.
                connection.execute("PRAGMA synchronous = NORMAL")
                with connection:
                    connection.execute("BEGIN IMMEDIATE")
                    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                        for statement in self.tables.split(";"):
                            connection.execute(statement)
                        connection.execute(f"PRAGMA application_id = {self.application_id}")
            # Reject all other objects, such as views and triggers, which an untrusted file may contain.
            query = "SELECT sql FROM sqlite_master WHERE sql NOT NULL"
            present = {_collapse_spaces(sql) for (sql,) in connection.execute(query)}
            (application_id,) = connection.execute("PRAGMA application_id").fetchone()
            if application_id != self.application_id or present != set(map(_collapse_spaces, self.tables.split(";"))):
                raise RunFolderError(f"{self.path}: is a database that belongs to another program. Pass another path.")
        except BaseException:
            connection.close()
            raise
        return connection


def decompress(content: bytes, limit: int = MAX_TEXT_BYTES) -> bytes:
    """Decompress the output of `zlib.compress`, up to `limit` bytes.

    Raises:
        ValueError: `content` is damaged, or decompresses to more than `limit`.
    """
    decompressor = zlib.decompressobj()
    try:
        data = decompressor.decompress(content, max(limit, 1))  # zlib does not limit the size if the limit is 0
    except (zlib.error, TypeError) as error:
        raise ValueError(str(error)) from None
    if not decompressor.eof:
        cause = "is truncated" if len(data) < limit else f"is larger than {MAX_TEXT_BYTES >> 20} MB"
        raise ValueError(f"compressed text {cause}")
    return data


def _collapse_spaces(statement: str) -> str:
    return " ".join(statement.split())


def _enable_write_ahead_log(connection: sqlite3.Connection) -> None:
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            # SQLite itself does not wait here if two processes create the file at the same time.
            if _get_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _get_code(error: sqlite3.Error) -> int:
    """Return the primary result code, which is the low byte of the extended result code."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
