"""`evidence.sqlite`: what led to each label, compressed, under a hash of the pair's id."""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent.datasets.encoding import dumps, loads
from agent.errors import RunFolderError
from agent.history import Exchange, History
from agent.llm.base import Reply
from agent.store.cache import pack_reply, unpack_reply
from agent.store.database import open_database, open_read_only, using_database
from agent.store.files import check_own
from agent.types import Usage, added
from agent.wording import what_is_wrong

_APPLICATION_ID = 0x74646165  # "tdae"
_VERSION = 1
_TABLES = """
CREATE TABLE records (key BLOB, round INTEGER, record BLOB NOT NULL, PRIMARY KEY (key, round));
CREATE TABLE texts (hash BLOB PRIMARY KEY, text BLOB NOT NULL);
CREATE TABLE answers (key TEXT PRIMARY KEY, reply BLOB NOT NULL);
CREATE TABLE paid (
    role TEXT, model TEXT, priced INTEGER, input_tokens INTEGER, cached_input_tokens INTEGER, output_tokens INTEGER,
    cost_usd REAL, PRIMARY KEY (role, model, priced)
)
"""
_PAY = """
INSERT INTO paid VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    input_tokens = input_tokens + excluded.input_tokens,
    cached_input_tokens = cached_input_tokens + excluded.cached_input_tokens,
    output_tokens = output_tokens + excluded.output_tokens,
    cost_usd = cost_usd + excluded.cost_usd
"""
_REMEDY = (
    "Move it away to go on: the labels in annotations.jsonl are whole; evidence and cost of earlier pairs are lost."
)
Price = Callable[[str, str, Usage], float | None]
"""The cost in dollars of what a role was answered by a served model; None when no price is known."""
# Texts that are known to be stored; forgotten as a whole, so that unusual prompts cannot fill the memory.
_REMEMBERED = 10_000
# Far above what a pair leads to; a few bytes can be unpacked into any number of them.
MOST_UNPACKED = 256 << 20


class EvidenceStore:
    """Keeps `History` by pair and round, and the answers to questions that pairs shared by their keys.

    System messages are the same for all pairs: each is stored once, by its hash. All else of a pair is compressed in
    one piece, since its prompts, programs and replies repeat each other (half the space, and a third of the time, of
    storing every text on its own).
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Open or create the file.

        Raises:
            RunFolderError: the file is damaged, something else's, no file, (read only) missing, or else a link.
            StorageError: it cannot be written.
        """
        self.path = path
        self._stored: set[bytes] = set()
        place = path.resolve() if read_only else path
        for part in ("", "-wal", "-shm", "-journal"):
            check_own(place.with_name(place.name + part))
        if read_only:
            self._connection = open_read_only(path, application_id=_APPLICATION_ID, version=_VERSION, remedy=_REMEDY)
        else:
            self._connection = open_database(
                path, application_id=_APPLICATION_ID, version=_VERSION, tables=_TABLES, remedy=_REMEDY
            )

    def put(self, evidence: History, round: int = 0) -> None:
        """Keep the evidence of a pair and round, in place of an earlier one; of shared answers the first one stays.

        Raises:
            StorageError: the file cannot be written; what it held is kept.
            RunFolderError: the file is damaged.
        """
        record, texts = _packed(evidence)
        fresh = [(key, zlib.compress(text)) for key, text in texts.items() if key not in self._stored]
        answers = [(key, zlib.compress(pack_reply(reply))) for key, reply in _answers(evidence)]
        row = (_key(evidence.pair.id), round, zlib.compress(dumps(record)))
        with self._transaction() as connection:
            if fresh:
                connection.executemany("INSERT OR IGNORE INTO texts VALUES (?, ?)", fresh)
            connection.executemany("INSERT OR IGNORE INTO answers VALUES (?, ?)", answers)
            connection.executemany(_PAY, _paid(evidence.exchanges))
            connection.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", row)
        if len(self._stored) > _REMEMBERED:
            self._stored.clear()
        self._stored.update(texts)

    def get(self, pair_id: str, round: int = 0) -> History | None:
        """Return the evidence of a pair and round, None when there is none.

        Raises:
            RunFolderError: the file is damaged.
        """
        with using_database(self.path, _REMEDY):
            query = "SELECT record FROM records WHERE key = ? AND round = ?"
            row = self._connection.execute(query, (_key(pair_id), round)).fetchone()
            if row is None:
                return None
            try:
                return History.model_validate(self._unpacked(loads(_decompressed(row[0]))))
            except (zlib.error, ValueError, TypeError, KeyError) as error:
                cause = f"is damaged ({what_is_wrong(error)})"
                raise RunFolderError(f"{self.path}: the evidence of {pair_id[:60]!r} {cause}") from error

    def pay(self, exchanges: Iterable[Exchange]) -> None:
        """Count what was paid for pairs that are left without evidence.

        Raises:
            StorageError: the file cannot be written.
            RunFolderError: the file is damaged.
        """
        with self._transaction() as connection:
            connection.executemany(_PAY, _paid(exchanges))

    @property
    def kept(self) -> bool:
        """Whether evidence was ever put here."""
        with using_database(self.path, _REMEDY):
            return bool(self._connection.execute("SELECT EXISTS (SELECT * FROM records)").fetchone()[0])

    def spent_usd(self, price: Price | None = None) -> float | None:
        """Return what was paid for the run so far, in dollars, None when that is not known.

        `price` gives the cost of tokens for which no price was known when they were paid.

        Raises:
            RunFolderError: the file is damaged.
        """
        query = "SELECT role, model, priced, input_tokens, cached_input_tokens, output_tokens, cost_usd FROM paid"
        costs: list[float | None] = []
        with using_database(self.path, _REMEDY):
            for role, model, priced, fresh, cached, output, cost in self._connection.execute(query):
                try:
                    usage = Usage(input_tokens=fresh, cached_input_tokens=cached, output_tokens=output, cost_usd=cost)
                except ValueError as error:
                    raise RunFolderError(f"{self.path}: is damaged ({what_is_wrong(error)}). {_REMEDY}") from error
                if not priced:
                    costs.append(None if price is None else price(role, model, usage))
                else:
                    costs.append(usage.cost_usd)
        return added(costs)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with using_database(self.path, _REMEDY):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                # SQLite has already rolled back after some errors, a full disk among them.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def answer(self, key: str) -> Reply | None:
        """Return what a shared question was answered when it was asked for a pair that is kept, None when it was not.

        `key` is that of the question as it was first asked, whatever had to be asked again.

        Raises:
            RunFolderError: the file is damaged.
        """
        with using_database(self.path, _REMEDY):
            row = self._connection.execute("SELECT reply FROM answers WHERE key = ?", (key,)).fetchone()
        try:
            return None if row is None else unpack_reply(_decompressed(row[0]))
        except (zlib.error, ValueError) as error:
            raise RunFolderError(f"{self.path}: holds an unreadable answer ({error}). {_REMEDY}") from error

    def close(self) -> None:
        """Close the file; closing twice does nothing."""
        self._connection.close()

    def _unpacked(self, record: dict[str, Any]) -> dict[str, Any]:
        for event in record["events"]:
            if event["kind"] == "exchange":
                event["messages"] = [self._message(message) for message in event["messages"]]
        return record

    def _message(self, message: dict[str, str]) -> dict[str, str]:
        if "content_hash" not in message:
            return message
        query = "SELECT text FROM texts WHERE hash = ?"
        row = self._connection.execute(query, (bytes.fromhex(message["content_hash"]),)).fetchone()
        if row is None:
            raise KeyError(f"text {message['content_hash']} is missing")
        return {"role": message["role"], "content": _decompressed(row[0]).decode("utf-8", "surrogatepass")}


def _decompressed(content: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(content, MOST_UNPACKED)
    if not unpacking.eof:
        cause = "is cut off" if len(text) < MOST_UNPACKED else f"unpacks to more than {MOST_UNPACKED >> 20} MB"
        raise ValueError(f"a compressed text {cause}")
    return text


def _paid(exchanges: Iterable[Exchange]) -> Iterator[tuple[str, str, bool, int, int, int, float]]:
    for exchange in exchanges:
        usage, cost = exchange.usage, exchange.usage.cost_usd
        tokens = (usage.input_tokens, usage.cached_input_tokens, usage.output_tokens)
        yield exchange.role, exchange.model, cost is not None, *tokens, cost or 0.0


def unusable_keys(evidence: History) -> Iterator[str]:
    """Yield the cache keys of the replies that led to nothing: asked again or not, their question had no usable one."""
    failed = False
    for exchange, again in zip(reversed(evidence.exchanges), reversed(evidence.asked_again()), strict=True):
        failed = failed if again else exchange.problem is not None
        if failed:
            yield exchange.key


def _answers(evidence: History) -> Iterator[tuple[str, Reply]]:
    """Yield the usable replies to shared questions, each under the key of the question as it was first asked.

    Another pair that asks the same then has the answer at once, not the unusable ones before it.
    """
    asked: dict[str, tuple[str, Usage]] = {}
    for exchange in evidence.exchanges:
        if exchange.shared:
            key, paid = asked.pop(exchange.role, (exchange.key, Usage()))
            paid += exchange.saved if exchange.cached else exchange.usage
            if exchange.problem is None:
                yield key, Reply(exchange.reply, usage=paid, model=exchange.model, seconds=exchange.seconds)
            else:
                asked[exchange.role] = key, paid


def _packed(evidence: History) -> tuple[dict[str, Any], dict[bytes, bytes]]:
    """Return the record to store, and by hash the texts it refers to."""
    # What the models compute themselves need not be stored.
    free: dict[str, Any] = {"pair": {"meta"}, "events": {"__all__": {"raw"}}}
    record = evidence.model_dump(mode="json", round_trip=True, exclude=free)
    # Free JSON goes in as it is: pydantic would replace lone surrogates in its keys and refuse it when nested deeply.
    record["pair"]["meta"] = evidence.pair.meta
    texts: dict[bytes, bytes] = {}
    for event, original in zip(record["events"], evidence.events, strict=True):
        if isinstance(original, Exchange):
            event["raw"] = original.raw
            event["messages"] = [_shared(message, texts) for message in original.messages]
    return record, texts


def _shared(message: dict[str, str], texts: dict[bytes, bytes]) -> dict[str, str]:
    if message.keys() != {"role", "content"} or message["role"] != "system":
        return message
    text = message["content"].encode("utf-8", "surrogatepass")
    key = hashlib.blake2b(text, digest_size=16).digest()
    texts[key] = text
    return {"role": "system", "content_hash": key.hex()}


def _key(pair_id: str) -> bytes:
    return hashlib.sha256(pair_id.encode("utf-8", "surrogatepass")).digest()
