"""Tables that may be larger than memory, in an unnamed temporary SQLite file that is deleted when the process exits."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent.errors import InputError, StorageError

_ROWS_PER_FETCH = 50
MAX_VALUE_BYTES = 256 << 20
"""Maximum size of a text, blob or row. Only files that were not written by this package may contain larger values."""


def connect(place: Path | str, *, uri: bool = False, timeout: float = 5.0) -> sqlite3.Connection:
    """Open a database in autocommit mode, for use from any thread.

    Values longer than `MAX_VALUE_BYTES` raise `sqlite3.DataError`.
    """
    connection = sqlite3.connect(place, uri=uri, timeout=timeout, isolation_level=None, check_same_thread=False)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    return connection


class TempDatabase:
    """Temporary tables. Up to 2 MB is cached in memory; the rest is stored in `SQLITE_TMPDIR` or `TMPDIR`.

    `tables` contains their `CREATE` statements, separated by `;`. Can be used from any thread. There are no rollbacks,
    so a statement must not fail halfway; use `INSERT OR IGNORE`.

    Raises (constructor and methods):
        StorageError: the file cannot be written.
        InputError: a value is longer than `MAX_VALUE_BYTES`.
    """

    def __init__(self, tables: str) -> None:
        self._lock = threading.RLock()
        self._connection = connect("")
        weakref.finalize(self, self._connection.close)
        # a single transaction without a journal, because the file is never read after a crash
        for statement in ("PRAGMA journal_mode = OFF", "BEGIN", *tables.split(";")):
            self.execute(statement)

    def execute(self, query: str, values: Sequence[object] = ()) -> list[Any]:
        """Execute a statement and return all rows. For large results use `iterate`."""
        with self._locked_connection():
            return self._connection.execute(query, values).fetchall()

    def iterate(self, query: str, values: Sequence[object] = ()) -> Iterator[Any]:
        """Iterate over the rows of a query without loading them all."""
        with self._locked_connection():
            cursor = self._connection.execute(query, values)
        while True:
            with self._locked_connection():
                rows = cursor.fetchmany(_ROWS_PER_FETCH)
            if not rows:
                return
            yield from rows

    def execute_many(self, statement: str, rows: Iterable[Sequence[object]]) -> int:
        """Execute a statement for each row. Return the number of inserted or changed rows."""
        with self._locked_connection():
            return self._connection.executemany(statement, rows).rowcount

    @contextmanager
    def _locked_connection(self) -> Iterator[None]:
        with self._lock:  # SQLite's prepared statements must not be shared by threads
            try:
                yield
            except sqlite3.OperationalError as error:
                remedy = "free some space, or set SQLITE_TMPDIR to another folder"
                raise StorageError(f"cannot write a temporary SQLite file ({error}); {remedy}") from error
            except sqlite3.DataError as error:
                raise InputError(f"a pair or an id is longer than {MAX_VALUE_BYTES >> 20} MB") from error


def as_key(text: str) -> bytes:
    """Encode a text as a key, because SQLite texts cannot contain lone surrogates.

    Keys sort in the same order as their texts.
    """
    return text.encode("utf-8", "surrogatepass")


def from_key(key: bytes) -> str:
    """Decode the text of a key."""
    return key.decode("utf-8", "surrogatepass")
