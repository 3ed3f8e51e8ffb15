"""The reply cache: one SQLite file that runs share, also at the same time."""

from __future__ import annotations

import zlib
from pathlib import Path
from types import TracebackType
from typing import Self

from agent.datasets.encoding import dumps, loads
from agent.errors import RunFolderError
from agent.llm.base import Reply
from agent.store.database import open_database, using_database
from agent.types import Usage

_APPLICATION_ID = 0x74646163  # "tdac"
_VERSION = 1
_TABLES = "CREATE TABLE replies (key TEXT PRIMARY KEY, reply BLOB NOT NULL)"
_REMEDY = "Delete it (its replies are then asked and paid for again) or give another one with --cache."


class SqliteReplyCache:
    """Keeps model replies by key; the parent folder is made where it is missing.

    Raises:
        RunFolderError: the file is damaged or something else's.
        StorageError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = open_database(
            path, application_id=_APPLICATION_ID, version=_VERSION, tables=_TABLES, remedy=_REMEDY
        )

    def get(self, key: str) -> Reply | None:
        """Return the reply as it was put, with the usage it cost then; None when there is none.

        Raises:
            RunFolderError: the file is damaged.
            StorageError: the file cannot be used.
        """
        with using_database(self.path, _REMEDY):
            row = self._connection.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        try:
            return unpack_reply(zlib.decompress(row[0]))
        except (zlib.error, ValueError) as error:
            raise RunFolderError(f"{self.path}: holds an unreadable reply ({error}). {_REMEDY}") from error

    def put(self, key: str, reply: Reply) -> None:
        """Keep a reply. The first one of a key stays, so that runs at the same time go on with the same answer.

        Raises:
            RunFolderError: the file is damaged.
            StorageError: the file cannot be written.
        """
        packed = zlib.compress(pack_reply(reply))
        with using_database(self.path, _REMEDY):
            self._connection.execute("INSERT OR IGNORE INTO replies VALUES (?, ?)", (key, packed))

    def forget(self, key: str) -> None:
        """Drop the reply of a key, if there is one.

        Raises:
            RunFolderError: the file is damaged.
            StorageError: the file cannot be written.
        """
        with using_database(self.path, _REMEDY):
            self._connection.execute("DELETE FROM replies WHERE key = ?", (key,))

    def close(self) -> None:
        """Close the file; closing twice does nothing."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def pack_reply(reply: Reply) -> bytes:
    """Return a reply in JSON, as it is stored: without what it saved, which whoever reads it says anew."""
    record = {
        "text": reply.text,
        "usage": reply.usage.model_dump(),
        "model": reply.model,
        "fingerprint": reply.fingerprint,
        "finish_reason": reply.finish_reason,
        "reasoning": reply.reasoning,
        "raw": dict(reply.raw),
        "seconds": reply.seconds,
        "address": reply.address,
    }
    return dumps(record)


def unpack_reply(packed: bytes) -> Reply:
    """Return the reply that was packed.

    Raises:
        ValueError: it is damaged.
    """
    try:
        record = loads(packed)
        return Reply(**{**record, "usage": Usage.model_validate(record["usage"])})
    except (TypeError, KeyError) as error:
        raise ValueError(str(error)) from error
