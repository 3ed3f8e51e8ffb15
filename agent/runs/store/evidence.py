"""`evidence.sqlite`: the compressed history of each pair, keyed by a hash of the pair id, and the costs of the run."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from agent.datasets.encoding import dumps, loads
from agent.errors import RunFolderError
from agent.llm.base import Reply
from agent.pipeline.history import History, ModelCall
from agent.runs.store.cache import pack_reply, unpack_reply
from agent.runs.store.database import MAX_TEXT_BYTES, Database, decompress
from agent.runs.store.files import check_run_file
from agent.runs.store.former import update_history
from agent.text import describe_error
from agent.types import Usage, sum_or_none

# Called with a role, a served model and a usage. Returns the cost in dollars, or None if no price is known.
Price = Callable[[str, str, Usage], float | None]

_ADD_PAYMENT = """
INSERT INTO paid VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    input_tokens = input_tokens + excluded.input_tokens,
    cached_input_tokens = cached_input_tokens + excluded.cached_input_tokens,
    output_tokens = output_tokens + excluded.output_tokens,
    cost_usd = cost_usd + excluded.cost_usd
"""
# Maximum number of text hashes in memory. A full set is cleared, so that unusual prompts cannot exhaust the memory.
_MAX_REMEMBERED = 10_000
_ROWS_PER_TRANSACTION = 500


class EvidenceStore(Database):
    """Stores a `History` for each pair and round, the replies that pairs share (keyed by cache key), and all costs.

    All pairs use the same system messages, so each message is stored once, under its hash. The rest of a pair's history
    is compressed as a single text, because its prompts, programs and replies have much text in common. Compressing each
    text separately would take twice the space and three times as long.

    Raises (constructor and methods):
        RunFolderError: the file is damaged, belongs to another program, is not a regular file, or is missing (if opened
            read-only). Links are accepted if the file is opened read-only.
        StorageError: the file cannot be written. Its content is unchanged.
    """

    application_id = 0x74646165  # "tdae"
    tables = """
    CREATE TABLE records (key BLOB, round INTEGER, record BLOB NOT NULL, PRIMARY KEY (key, round));
    CREATE TABLE texts (hash BLOB PRIMARY KEY, text BLOB NOT NULL);
    CREATE TABLE answers (key TEXT PRIMARY KEY, reply BLOB NOT NULL);
    CREATE TABLE paid (
        role TEXT, model TEXT, priced INTEGER, input_tokens INTEGER, cached_input_tokens INTEGER, output_tokens INTEGER,
        cost_usd REAL, PRIMARY KEY (role, model, priced)
    )
    """
    remedy = (
        "To resume the run, move this file away. The labels in annotations.jsonl are complete. "
        "The evidence and costs of earlier pairs are lost."
    )

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        place = Path(os.path.realpath(path)) if read_only else path  # `Path.resolve` raises on a symlink loop
        for part in ("", "-wal", "-shm", "-journal"):
            check_run_file(place.with_name(place.name + part))
        super().__init__(path, read_only=read_only)
        self._stored: set[bytes] = set()

    def put(self, history: History, round: int = 0) -> None:
        """Store the history of a pair and round, replacing any earlier history.

        The costs are added to the costs of earlier attempts. If several shared replies have the same key, the first one
        is kept.
        """
        record, texts = _pack_history(history)
        fresh = [(key, zlib.compress(text)) for key, text in texts.items() if key not in self._stored]
        answers = [(key, pack_reply(reply)) for key, reply in _iterate_shared_replies(history)]
        row = (_hash_id(history.pair.id), round, zlib.compress(dumps(record)))
        with self.transaction() as connection:
            connection.executemany("INSERT OR IGNORE INTO texts VALUES (?, ?)", fresh)
            connection.executemany("INSERT OR IGNORE INTO answers VALUES (?, ?)", answers)
            connection.executemany(_ADD_PAYMENT, _iterate_payment_rows(history.model_calls))
            connection.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", row)
        if len(self._stored) > _MAX_REMEMBERED:
            self._stored.clear()
        self._stored.update(texts)

    def get(self, pair_id: str, round: int = 0) -> History | None:
        """Return the history of a pair and round, or None."""
        rows = self.execute("SELECT record FROM records WHERE key = ? AND round = ?", (_hash_id(pair_id), round))
        if not rows:
            return None
        try:
            record, texts = loads(decompress(rows[0][0])), dict[str, str]()
            update_history(record)
            for event in record["events"]:
                if event["kind"] == "model_call":
                    event["messages"] = [self._restore_message(message, texts) for message in event["messages"]]
            return History.model_validate(record)
        except (ValueError, TypeError, KeyError) as error:
            raise RunFolderError(
                f"{self.path}: the evidence of {pair_id[:60]!r} is damaged ({describe_error(error)})"
            ) from error

    def copy_from(self, other: EvidenceStore, keys: Iterable[tuple[str, int]], segments: int) -> None:
        """Copy the histories with the given keys, and all texts, shared replies and costs, from another store.

        Copied histories replace existing ones. `segments` is added to the segment numbers of the copied histories. If
        several shared replies have the same key, the first one is kept.
        """
        self._copy("INSERT OR IGNORE INTO texts VALUES (?, ?)", other.iterate("SELECT hash, text FROM texts"))
        self._copy("INSERT OR IGNORE INTO answers VALUES (?, ?)", other.iterate("SELECT key, reply FROM answers"))
        self._copy(_ADD_PAYMENT, other.iterate("SELECT * FROM paid"))
        self._copy(
            "INSERT OR REPLACE INTO records VALUES (?, ?, ?)",
            (other._shift_segment(segments, *key) for key in keys),
        )

    def _copy(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        rows = iter(rows)
        while batch := list(islice(rows, _ROWS_PER_TRANSACTION)):
            with self.transaction() as connection:
                connection.executemany(statement, batch)

    def _shift_segment(self, segments: int, pair_id: str, round: int) -> tuple[bytes, int, bytes]:
        key = (_hash_id(pair_id), round)
        try:
            ((packed,),) = self.execute("SELECT record FROM records WHERE key = ? AND round = ?", key)
            record = loads(decompress(packed))
            record["segment"] = (record["segment"] or 0) + segments
        except (ValueError, TypeError, KeyError):
            raise RunFolderError(
                f"{self.path}: the evidence of {pair_id[:60]!r} is missing or damaged. "
                "`agent runs verify` lists the remedies."
            ) from None
        return *key, zlib.compress(dumps(record))

    def contains(self, pair_id: str, round: int = 0) -> bool:
        """Whether the history of a pair and round is stored."""
        return bool(self.execute("SELECT 1 FROM records WHERE key = ? AND round = ?", (_hash_id(pair_id), round)))

    def find_shared_reply(self, key: str) -> Reply | None:
        """Return the reply to a call that several pairs share, or None if it is not stored.

        `key` is the key of the first attempt, even if a later attempt succeeded.
        """
        rows = self.execute("SELECT reply FROM answers WHERE key = ?", (key,))
        try:
            return unpack_reply(rows[0][0]) if rows else None
        except ValueError as error:
            raise RunFolderError(f"{self.path}: contains an unreadable reply ({error}). {self.remedy}") from error

    def add_costs(self, model_calls: Iterable[ModelCall]) -> None:
        """Add the costs of model calls for a pair that has no evidence."""
        with self.transaction() as connection:
            connection.executemany(_ADD_PAYMENT, _iterate_payment_rows(model_calls))

    def spent_usd(self, price: Price | None = None) -> float | None:
        """Return the cost of the run so far in US dollars, or None if it is unknown.

        `price` computes the cost of tokens whose price was unknown when they were used.
        """
        return sum_or_none(
            usage.cost_usd if is_priced else None if price is None else price(role, model, usage)
            for role, model, is_priced, usage in self._read_payments()
        )

    def spent_tokens(self) -> int | None:
        """Return the number of input and output tokens that the run has used so far, or None if it is unknown."""
        payments = list(self._read_payments())
        if any(role == "" for role, *_ in payments):
            return None
        return sum(usage.input_tokens + usage.output_tokens for *_, usage in payments)

    def _read_payments(self) -> Iterator[tuple[str, str, bool, Usage]]:
        """Iterate over (role, model, whether a price was known, usage). An empty role marks unknown costs."""
        query = "SELECT role, model, priced, input_tokens, cached_input_tokens, output_tokens, cost_usd FROM paid"
        for role, model, is_priced, fresh, cached, output, cost in self.execute(query):
            try:
                usage = Usage(input_tokens=fresh, cached_input_tokens=cached, output_tokens=output, cost_usd=cost)
            except ValueError as error:
                raise RunFolderError(f"{self.path}: is damaged ({describe_error(error)}). {self.remedy}") from error
            yield role, model, bool(is_priced), usage

    @property
    def has_records(self) -> bool:
        """Whether any history is stored."""
        return bool(self.execute("SELECT 1 FROM records LIMIT 1"))

    def _restore_message(self, message: dict[str, str], texts: dict[str, str]) -> dict[str, str]:
        """Return a message with its content. `texts` has the texts of the history so far, which share one limit."""
        if (key := message.get("content_hash")) is None:
            return message
        if key not in texts:
            # This raises ValueError if the text is missing.
            ((text,),) = self.execute("SELECT text FROM texts WHERE hash = ?", (bytes.fromhex(key),))
            limit = MAX_TEXT_BYTES - sum(map(len, texts.values()))
            texts[key] = decompress(text, limit).decode("utf-8", "surrogatepass")
        return {"role": message["role"], "content": texts[key]}


def iterate_unusable(history: History) -> Iterator[ModelCall]:
    """Iterate over the model calls that never received a usable reply, including retries."""
    failed = False
    for model_call, is_reask in zip(reversed(history.model_calls), reversed(history.asked_again()), strict=True):
        failed = failed if is_reask else model_call.problem is not None
        if failed:
            yield model_call


def _iterate_payment_rows(model_calls: Iterable[ModelCall]) -> Iterator[tuple[str, str, bool, int, int, int, float]]:
    for model_call in model_calls:
        usage, cost = model_call.usage, model_call.usage.cost_usd
        tokens = (usage.input_tokens, usage.cached_input_tokens, usage.output_tokens)
        # SQLite stores text as UTF-8, which cannot encode lone surrogates.
        role, model = (text.encode("utf-8", "replace").decode("utf-8") for text in (model_call.role, model_call.model))
        yield role, model, cost is not None, *tokens, cost or 0.0


def _iterate_shared_replies(history: History) -> Iterator[tuple[str, Reply]]:
    """Iterate over the usable replies to shared calls, each with the key of the call's first attempt.

    Other pairs can then reuse the reply without repeating the failed attempts.
    """
    key, paid = "", Usage()
    for model_call in history.model_calls:
        if model_call.attempt == 0:
            key, paid = model_call.key, Usage()
        paid += model_call.saved if model_call.cached else model_call.usage
        if model_call.shared and model_call.problem is None:
            yield key, Reply(model_call.reply, usage=paid, model=model_call.model, seconds=model_call.seconds)


def _pack_history(history: History) -> tuple[dict[str, Any], dict[bytes, bytes]]:
    """Return the record to store, and the texts that the record refers to, keyed by hash."""
    # Computed fields need not be stored.
    free_form: dict[str, Any] = {"pair": {"meta"}, "events": {"__all__": {"raw"}}}
    record = history.model_dump(mode="json", round_trip=True, exclude=free_form)
    # Free-form JSON bypasses pydantic, which would replace lone surrogates in keys and reject deep nesting.
    record["pair"]["meta"] = history.pair.meta
    texts: dict[bytes, bytes] = {}
    for event, original in zip(record["events"], history.events, strict=True):
        if isinstance(original, ModelCall):
            event["raw"] = original.raw
            event["messages"] = [_extract_text(message, texts) for message in original.messages]
    return record, texts


def _extract_text(message: dict[str, str], texts: dict[bytes, bytes]) -> dict[str, str]:
    if message.keys() != {"role", "content"} or message["role"] != "system":
        return message
    text = message["content"].encode("utf-8", "surrogatepass")
    key = hashlib.blake2b(text, digest_size=16).digest()
    texts[key] = text
    return {"role": "system", "content_hash": key.hex()}


def _hash_id(pair_id: str) -> bytes:
    return hashlib.sha256(pair_id.encode("utf-8", "surrogatepass")).digest()
