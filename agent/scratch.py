"""Tables that may outgrow the memory: in a temporary file of SQLite, which has no name and is gone with the process."""

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
"""Bytes of a text, blob or row, far above what anything we store has; a stranger's file may have larger ones."""


def connect(place: Path | str, *, uri: bool = False, timeout: float = 5.0) -> sqlite3.Connection:
    """Open a database in autocommit mode, for any thread; values above `LONGEST_VALUE` raise `sqlite3.DataError`."""
    connection = sqlite3.connect(place, uri=uri, timeout=timeout, isolation_level=None, check_same_thread=False)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    return connection


class Scratch:
    """Tables (`;` between statements) that share 2 MB of memory; the rest lies where `SQLITE_TMPDIR` or `TMPDIR` says.

    Usable from any thread. Nothing is undone: a statement must not be able to fail halfway (`INSERT OR IGNORE`).

    Raises, as every method does:
        StorageError: the file cannot be written.
        InputError: a value is longer than `LONGEST_VALUE`.
    """

    def __init__(self, tables: str) -> None:
        self._lock = threading.RLock()
        self._connection = connect("")
        weakref.finalize(self, self._connection.close)
        # one transaction for ever, without a journal: nothing is read after a crash
        for statement in ("PRAGMA journal_mode = OFF", "BEGIN", *tables.split(";")):
            self.execute(statement)

    def execute(self, query: str, values: Sequence[object] = ()) -> list[Any]:
        """Execute a statement and return its rows, which are few."""
        with self._locked_connection():
            return self._connection.execute(query, values).fetchall()

    def iterate(self, query: str, values: Sequence[object] = ()) -> Iterator[Any]:
        """Yield the rows of a query, of which there may be many."""
        with self._locked_connection():
            cursor = self._connection.execute(query, values)
        while True:
            with self._locked_connection():
                rows = cursor.fetchmany(_ROWS_PER_FETCH)
            if not rows:
                return
            yield from rows

    def execute_many(self, statement: str, rows: Iterable[Sequence[object]]) -> int:
        """Execute a statement for each of many rows, and return how many it inserted or changed."""
        with self._locked_connection():
            return self._connection.executemany(statement, rows).rowcount

    @contextmanager
    def _locked_connection(self) -> Iterator[None]:
        with self._lock:  # two threads are else given one prepared statement
            try:
                yield
            except sqlite3.OperationalError as error:
                remedy = "make room where it lies, or name another folder in the variable SQLITE_TMPDIR"
                raise StorageError(f"a temporary file of SQLite cannot be written ({error}); {remedy}") from error
            except sqlite3.DataError as error:
                raise InputError(f"a pair or an id is longer than {MAX_VALUE_BYTES >> 20} MB") from error


def as_key(text: str) -> bytes:
    """Return a text as a key: SQLite's own text has no lone surrogates. Keys sort as their texts do."""
    return text.encode("utf-8", "surrogatepass")


def from_key(key: bytes) -> str:
    """Return the text of a key."""
    return key.decode("utf-8", "surrogatepass")
