"""The reply cache: one SQLite file that concurrent runs can share."""

from __future__ import annotations

import zlib
from dataclasses import fields, replace

from agent.datasets.encoding import dumps, loads
from agent.errors import RunFolderError
from agent.llm.base import Reply
from agent.runs.store.database import Database, decompress
from agent.types import Usage

# Of the excluded fields, `prepaid` has its own column, and the others depend on the call that receives the reply.
_STORED = [field.name for field in fields(Reply) if field.name not in ("cached", "saved", "prepaid", "limits")]


class SqliteReplyCache(Database):
    """Stores model replies under their cache keys. Creates the parent folder if it is missing.

    Raises (constructor and methods):
        RunFolderError: the file is damaged or belongs to another program.
        StorageError: the file cannot be written.
    """

    application_id = 0x74646163  # "tdac"
    tables = """
        CREATE TABLE replies (key TEXT PRIMARY KEY, reply BLOB NOT NULL, prepaid INTEGER NOT NULL);
        CREATE INDEX prepaid ON replies (key) WHERE prepaid
    """
    remedy = "Delete it (its replies will be requested and charged again), or pass another file with --cache."

    def get(self, key: str) -> Reply | None:
        """Return the stored reply with its original usage, or None."""
        rows = self.execute("SELECT reply, prepaid FROM replies WHERE key = ?", (key,))
        try:
            return replace(unpack_reply(rows[0][0]), prepaid=bool(rows[0][1])) if rows else None
        except ValueError as error:
            raise RunFolderError(f"{self.path}: contains an unreadable reply ({error}). {self.remedy}") from error

    def put(self, key: str, reply: Reply) -> None:
        """Store a reply unless the key already has one, so that concurrent runs use the same reply."""
        self.execute("INSERT OR IGNORE INTO replies VALUES (?, ?, ?)", (key, pack_reply(reply), reply.prepaid))

    def forget(self, key: str) -> None:
        """Remove the reply stored under a key, if any."""
        self.execute("DELETE FROM replies WHERE key = ?", (key,))

    def list_prepaid(self) -> list[str]:
        """Return the keys of the prepaid replies."""
        return [key for (key,) in self.execute("SELECT key FROM replies WHERE prepaid")]

    def mark(self, key: str, *, prepaid: bool) -> bool:
        """Set whether a reply is prepaid.

        Returns whether this call changed the stored value. Of several concurrent calls, only one returns True.
        """
        update = "UPDATE replies SET prepaid = ?1 WHERE key = ?2 AND prepaid != ?1 RETURNING 1"
        return bool(self.execute(update, (prepaid, key)))


def pack_reply(reply: Reply) -> bytes:
    """Serialise a reply as compressed JSON."""
    record = {name: getattr(reply, name) for name in _STORED}
    return zlib.compress(dumps({**record, "usage": reply.usage.model_dump(), "raw": dict(reply.raw)}))


def unpack_reply(packed: bytes) -> Reply:
    """Deserialise a packed reply.

    Raises:
        ValueError: the data is damaged.
    """
    try:
        record = loads(decompress(packed))
        return Reply(**{**record, "usage": Usage.model_validate(record["usage"])})
    except (TypeError, KeyError) as error:
        raise ValueError(str(error)) from error
