"""Store normalised pairs in a temporary file that supports iteration and lookup by id."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, overload

from pydantic import TypeAdapter

from agent.datasets.encoding import dumps, loads
from agent.datasets.formats import read_records
from agent.datasets.sources import BadLine
from agent.errors import InputError
from agent.temp_database import TempDatabase, as_key, from_key
from agent.types import Comparison, Pair

# Compared with the default level, level 3 needs a third of the time and 10% more space.
_COMPRESSION = 3
_PAIR = TypeAdapter[Pair](Pair | Comparison)
_TABLES = """
CREATE TABLE pairs (
    place INTEGER PRIMARY KEY, id BLOB UNIQUE, query BLOB, language BLOB, file INTEGER, line INTEGER, record BLOB
)
"""
_BY_QUERY = """
SELECT place FROM (SELECT place, min(place) OVER (PARTITION BY query) AS first FROM pairs WHERE place < ?)
ORDER BY first, place
"""


class PairStore(Sequence[Pair]):
    """A sequence of pairs in a temporary file (`TempDatabase`), normalised in the same way as a run's stored input.

    Raises (constructor and methods):
        StorageError: the disk is full.
    """

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        self._scratch = TempDatabase(_TABLES)
        self._digest = hashlib.sha256()
        self._count = 0
        for pair in pairs:
            self.add(pair)

    def add(self, pair: Pair) -> None:
        """Add a pair.

        Raises:
            InputError: the id is already present, or `meta` cannot be encoded as JSON.
        """
        try:
            if not self.put(pair):
                raise InputError(f"two pairs have the id {pair.id[:60]!r}. Ids must be unique")
        except ValueError as error:
            raise InputError(str(error)) from None

    def put(self, pair: Pair, file: int = 0, line: int = 0) -> bool:
        """Add a pair with its location in the input, unless its id is already present.

        Return whether the pair was added.

        Raises:
            ValueError: `meta` cannot be encoded as JSON.
        """
        optional: dict[str, Any] = {} if pair.context is None else {"context": pair.context}
        optional |= {} if pair.origin is None else {"origin": pair.origin.model_dump(exclude_none=True)}
        optional |= {"first": pair.first} if isinstance(pair, Comparison) else {}
        try:
            record = dumps({
                "id": pair.id, "query": pair.query, "code": pair.code, "language": pair.language, **optional,
                "meta": pair.meta,
            }) + b"\n"  # fmt: skip
        except (TypeError, ValueError) as error:
            raise ValueError(f"the meta field of pair {pair.id[:60]!r} cannot be encoded as JSON: {error}") from None
        query = hashlib.blake2b(as_key(pair.query), digest_size=16).digest()
        row = (self._count, as_key(pair.id), query, as_key(pair.language), file, line, record)
        if not self._scratch.execute_many("INSERT OR IGNORE INTO pairs VALUES (?, ?, ?, ?, ?, ?, ?)", [row]):
            return False
        self._digest.update(record)
        self._count += 1
        return True

    def origin(self, pair_id: str) -> tuple[int, int]:
        """Return the file number and the line number of a pair. The pair must be present."""
        ((file, line),) = self._scratch.execute("SELECT file, line FROM pairs WHERE id = ?", (as_key(pair_id),))
        return file, line

    @property
    def sha256(self) -> str:
        """SHA-256 (hex) of the normalised pairs in order."""
        return self._digest.hexdigest()

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Pair]: ...
    def __getitem__(self, index: int | slice) -> Pair | Sequence[Pair]:
        places = range(self._count)[index]
        if isinstance(places, range):
            return [self[place] for place in places]
        ((record,),) = self._scratch.execute("SELECT record FROM pairs WHERE place = ?", (places,))
        return _decode_pair(record)

    def __iter__(self) -> Iterator[Pair]:
        return map(_decode_pair, self.records())

    def records(self) -> Iterator[bytes]:
        """Iterate over the pairs as JSON lines."""
        return (record for (record,) in self._scratch.iterate("SELECT record FROM pairs ORDER BY place"))

    def ids(self) -> Iterator[str]:
        """Iterate over the ids of the pairs."""
        return (from_key(key) for (key,) in self._scratch.iterate("SELECT id FROM pairs ORDER BY place"))

    def place(self, pair_id: str) -> int | None:
        """Return the position of a pair (counted from 0), or None if it is not present."""
        rows = self._scratch.execute("SELECT place FROM pairs WHERE id = ?", (as_key(pair_id),))
        return rows[0][0] if rows else None

    def grouped(self, limit: int | None = None) -> Iterator[Pair]:
        """Iterate over the first `limit` pairs in the order that `group_by_query` defines."""
        first = self._count if limit is None else min(limit, self._count)
        return (self[place] for (place,) in self._scratch.iterate(_BY_QUERY, (first,)))

    def of_each_language(self) -> Iterator[Pair]:
        """Iterate over the first pair in each language."""
        return (self[place] for (place,) in self._scratch.iterate("SELECT min(place) FROM pairs GROUP BY language"))

    def write(self, path: Path) -> None:
        """Write the pairs as JSON lines, compressed with gzip (`.jsonl.gz`).

        Raises:
            OSError: the file cannot be written.
        """
        # The gzip header contains neither a name nor a time, so identical pairs produce identical files.
        with path.open("wb") as raw, gzip.GzipFile("", "wb", _COMPRESSION, raw, mtime=0) as file:
            file.writelines(self.records())


def group_by_query(pairs: Sequence[Pair], limit: int | None = None) -> Iterable[Pair]:
    """Sort the first `limit` pairs so that pairs with the same query are adjacent.

    The prompts for adjacent pairs then often start with the same text. The sort is stable.
    """
    if isinstance(pairs, PairStore):
        return pairs.grouped(limit)
    first: dict[str, int] = {}
    return sorted(islice(pairs, limit), key=lambda pair: first.setdefault(pair.query, len(first)))


def iter_normalised(path: Path) -> Iterator[Pair]:
    """Iterate over the pairs in a file written by `PairStore.write`.

    Raises:
        InputError: the file is missing or damaged.
    """
    for record in read_records(path, regular=True):
        if isinstance(record, BadLine):
            raise InputError(record.prefix + record.cause, path=path, line=record.line)
        try:
            yield _PAIR.validate_python(record.value)
        except ValueError as error:
            raise InputError(f"is not a normalised pair: {error}", path=path, line=record.line) from None


def _decode_pair(record: bytes) -> Pair:
    return _PAIR.validate_python(loads(record))
