"""The reply cache: one SQLite file that runs share, also at the same time."""

from __future__ import annotations

import zlib
from dataclasses import fields, replace

from agent.datasets.encoding import dumps, loads
from agent.errors import RunFolderError
from agent.llm.base import Reply
from agent.store.database import Database, decompress
from agent.types import Usage

# Whether a reply was paid for, what it saved, and the server's limits are another matter each time it is read.
_STORED = [each.name for each in fields(Reply) if each.name not in ("cached", "saved", "prepaid", "limits")]


class SqliteReplyCache(Database):
    """Keeps model replies by key; the parent folder is made where it is missing.

    Raises, as every method does:
        RunFolderError: the file is damaged or something else's.
        StorageError: it cannot be written.
    """

    application_id = 0x74646163  # "tdac"
    tables = """
        CREATE TABLE replies (key TEXT PRIMARY KEY, reply BLOB NOT NULL, prepaid INTEGER NOT NULL);
        CREATE INDEX prepaid ON replies (key) WHERE prepaid
    """
    remedy = "Delete it (its replies are then asked and paid for again) or give another one with --cache."

    def get(self, key: str) -> Reply | None:
        """Return the reply as it was put, with the usage it cost then; None when there is none."""
        rows = self.execute("SELECT reply, prepaid FROM replies WHERE key = ?", (key,))
        try:
            return replace(unpack_reply(rows[0][0]), prepaid=bool(rows[0][1])) if rows else None
        except ValueError as error:
            raise RunFolderError(f"{self.path}: holds an unreadable reply ({error}). {self.remedy}") from error

    def put(self, key: str, reply: Reply) -> None:
        """Keep a reply. The first one of a key stays, so that runs at the same time go on with the same answer."""
        self.execute("INSERT OR IGNORE INTO replies VALUES (?, ?, ?)", (key, pack_reply(reply), reply.prepaid))

    def forget(self, key: str) -> None:
        """Drop the reply of a key, if there is one."""
        self.execute("DELETE FROM replies WHERE key = ?", (key,))

    def list_prepaid(self) -> list[str]:
        """Return the keys of the replies that are prepaid."""
        return [key for (key,) in self.execute("SELECT key FROM replies WHERE prepaid")]

    def mark(self, key: str, *, prepaid: bool) -> bool:
        """Set whether a reply is prepaid, and say whether that changed anything; of several processes, to one."""
        update = "UPDATE replies SET prepaid = ?1 WHERE key = ?2 AND prepaid != ?1 RETURNING 1"
        return bool(self.execute(update, (prepaid, key)))


def pack_reply(reply: Reply) -> bytes:
    """Return a reply as it is stored: compressed JSON."""
    record = {name: getattr(reply, name) for name in _STORED}
    return zlib.compress(dumps({**record, "usage": reply.usage.model_dump(), "raw": dict(reply.raw)}))


def unpack_reply(packed: bytes) -> Reply:
    """Return the reply that was packed.

    Raises:
        ValueError: it is damaged.
    """
    try:
        record = loads(decompress(packed))
        return Reply(**{**record, "usage": Usage.model_validate(record["usage"])})
    except (TypeError, KeyError) as error:
        raise ValueError(str(error)) from error
