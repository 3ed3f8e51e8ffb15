"""The SQLite files of a run: write-ahead log, several processes at once, errors in words for the user."""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Self

from agent.errors import RunFolderError, StorageError
from agent.scratch import MAX_VALUE_BYTES, connect
from agent.store.files import RESUME_HINT, sync_to_disk, writing

_BUSY_SECONDS = 15.0
_CAUSES = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk is full or reports an error",
    sqlite3.SQLITE_READONLY: "the file is read-only",
    sqlite3.SQLITE_CANTOPEN: "the file or its folder cannot be opened for writing",
    sqlite3.SQLITE_PERM: "this user may not write there",
    sqlite3.SQLITE_BUSY: "another process keeps it locked",
    sqlite3.SQLITE_LOCKED: "another process keeps it locked",
}
_DAMAGED = {
    sqlite3.SQLITE_CORRUPT: "is damaged or not a database",
    sqlite3.SQLITE_NOTADB: "is damaged or not a database",
    sqlite3.SQLITE_TOOBIG: f"has a value of more than {MAX_VALUE_BYTES >> 20} MB",
}


class Database:
    """A file of a subclass's `tables` (`;` between statements), known by its `application_id`; closed by `with`, too.

    `remedy` says what to do with a damaged file. Usable from any one thread at a time.

    Raises:
        RunFolderError: the file is damaged or something else's, or (read only) missing.
        StorageError: it cannot be written.
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
        """Close the file; closing twice does nothing."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sync(self) -> None:
        """Sync to the disk what was committed so far, by any process: its log of writes, which is read again from it.

        Raises:
            StorageError: the disk fails.
        """
        with writing(self.path):
            # without a log everything stands in the file, which SQLite syncs by itself
            with suppress(FileNotFoundError):
                sync_to_disk(self.path.with_name(f"{self.path.name}-wal"))
            sync_to_disk(self.path.parent)

    def execute(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """Execute a statement, in autocommit mode, and return its rows; raises as the class does."""
        with self.translate_errors():
            return self._connection.execute(statement, values).fetchall()

    def iterate(self, statement: str, values: Sequence[object] = ()) -> Iterator[Any]:
        """Iterate over the rows of a query without loading them all; raises as the class does."""
        with self.translate_errors():
            yield from self._connection.execute(statement, values)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection in a transaction, rolled back when the block raises; raises as the class does."""
        with self.translate_errors(), self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Turn errors of SQLite into ours."""
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
            raise  # a mistake of ours

    def _open_read_only(self) -> sqlite3.Connection:
        uri = self.path.resolve().as_uri()
        try:
            return self._open(f"{uri}?mode=ro")
        except sqlite3.OperationalError:
            # A read-only disk has no place for the log's index; without a log there is nothing to index.
            log = self.path.with_name(self.path.name + "-wal")
            if log.exists() and log.stat().st_size:
                raise
            return self._open(f"{uri}?mode=ro&immutable=1")

    def _open(self, place: Path | str, *, create: bool = False) -> sqlite3.Connection:
        connection = connect(place, uri=not create, timeout=_BUSY_SECONDS)
        try:
            if create:
                _use_write_ahead_log(connection)
                # A crash of the machine loses what was committed since `sync`, never the file; a kill loses nothing.
                connection.execute("PRAGMA synchronous = NORMAL")
                with connection:
                    connection.execute("BEGIN IMMEDIATE")
                    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                        for statement in self.tables.split(";"):
                            connection.execute(statement)
                        connection.execute(f"PRAGMA application_id = {self.application_id}")
            # a stranger's may have views or triggers, too; what begins with sqlite_ is SQLite's own
            query = "SELECT sql FROM sqlite_master WHERE sql NOT NULL AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
            present = {_normalise(sql) for (sql,) in connection.execute(query)}
            (application_id,) = connection.execute("PRAGMA application_id").fetchone()
            if application_id != self.application_id or present != set(map(_normalise, self.tables.split(";"))):
                raise RunFolderError(f"{self.path}: is a database of something else; give another path")
        except BaseException:
            connection.close()
            raise
        return connection


def decompress(content: bytes) -> bytes:
    """Return what was compressed by `zlib.compress`. A few bytes can unpack to any number of them.

    Raises:
        ValueError: `content` is damaged, or unpacks to more than `LONGEST_VALUE`.
    """
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(content, MAX_VALUE_BYTES)
    except (zlib.error, TypeError) as error:
        raise ValueError(str(error)) from None
    if not unpacking.eof:
        cause = "is cut off" if len(data) < MAX_VALUE_BYTES else f"unpacks to more than {MAX_VALUE_BYTES >> 20} MB"
        raise ValueError(f"a compressed text {cause}")
    return data


def _normalise(statement: str) -> str:
    return " ".join(statement.split())


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            # Two processes that create the file together: SQLite does not wait here by itself.
            if _get_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _get_code(error: sqlite3.Error) -> int:
    """Return the kind of an error: the low byte of its code, of which the rest is detail."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
