"""Pairs on disk in the normalised form that a run keeps of them: many can be gone through, and found by their ids."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import AsyncIterable, Iterable, Iterator, Sequence
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from typing import overload

from agent.datasets.encoding import dumps, loads
from agent.datasets.formats import records
from agent.datasets.sources import BadLine
from agent.errors import InputError
from agent.scratch import Scratch, as_key, from_key
from agent.streams import iterate
from agent.types import Pair

# Level 3 takes a third of the default's time and 10% more space.
_COMPRESSION = 3
_TABLES = """
CREATE TABLE pairs (
    place INTEGER PRIMARY KEY, id BLOB UNIQUE, query BLOB, language BLOB, file INTEGER, line INTEGER, record BLOB
)
"""
_BY_QUERY = """
SELECT place FROM (SELECT place, min(place) OVER (PARTITION BY query) AS first FROM pairs WHERE place < ?)
ORDER BY first, place
"""


class Spool(Sequence[Pair]):
    """Pairs in their order, in a temporary file (`Scratch`); each is as it will be when a run's input is read again.

    Raises, as every method does:
        StorageError: there is no room for the file.
    """

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        self._scratch = Scratch(_TABLES)
        self._digest = hashlib.sha256()
        self._count = 0
        for pair in pairs:
            self.add(pair)

    @classmethod
    async def of(cls, pairs: Iterable[Pair] | AsyncIterable[Pair]) -> Spool:
        """Return pairs taken in as they come; a spool is itself.

        Raises:
            InputError: as `add` raises.
        """
        if isinstance(pairs, Spool):
            return pairs
        spool = cls()
        async with aclosing(iterate(pairs)) as coming:
            async for pair in coming:
                spool.add(pair)
        return spool

    def add(self, pair: Pair) -> None:
        """Take a pair in.

        Raises:
            InputError: its id comes twice, or its `meta` has no form in JSON.
        """
        try:
            if not self.put(pair):
                raise InputError(f"the id {pair.id[:60]!r} comes twice among the pairs; ids must differ")
        except ValueError as error:
            raise InputError(str(error)) from None

    def put(self, pair: Pair, file: int = 0, line: int = 0) -> bool:
        """Take a pair in with its place in the input, unless its id is there already; return whether it was not.

        Raises:
            ValueError: its `meta` has no form in JSON.
        """
        context = {} if pair.context is None else {"context": pair.context}
        try:
            record = dumps({
                "id": pair.id, "query": pair.query, "code": pair.code, "language": pair.language, **context,
                "meta": pair.meta,
            }) + b"\n"  # fmt: skip
        except (TypeError, ValueError) as error:
            raise ValueError(f"the meta of pair {pair.id[:60]!r} cannot be written as JSON: {error}") from None
        query = hashlib.blake2b(as_key(pair.query), digest_size=16).digest()
        row = (self._count, as_key(pair.id), query, as_key(pair.language), file, line, record)
        if not self._scratch.execute_many("INSERT OR IGNORE INTO pairs VALUES (?, ?, ?, ?, ?, ?, ?)", [row]):
            return False
        self._digest.update(record)
        self._count += 1
        return True

    def origin(self, pair_id: str) -> tuple[int, int]:
        """Return file and line of a pair that is here."""
        ((file, line),) = self._scratch.execute("SELECT file, line FROM pairs WHERE id = ?", (as_key(pair_id),))
        return file, line

    @property
    def sha256(self) -> str:
        """The hash (hex) of the normalised pairs, in their order."""
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
        return _pair(record)

    def __iter__(self) -> Iterator[Pair]:
        return map(_pair, self.records())

    def records(self) -> Iterator[bytes]:
        """Yield the pairs as lines of JSON."""
        return (record for (record,) in self._scratch.iterate("SELECT record FROM pairs ORDER BY place"))

    def ids(self) -> Iterator[str]:
        """Yield the pairs' ids."""
        return (from_key(key) for (key,) in self._scratch.iterate("SELECT id FROM pairs ORDER BY place"))

    def place(self, pair_id: str) -> int | None:
        """Return the number of a pair, from 0; None where it is not here."""
        rows = self._scratch.execute("SELECT place FROM pairs WHERE id = ?", (as_key(pair_id),))
        return rows[0][0] if rows else None

    def grouped(self, limit: int | None = None) -> Iterator[Pair]:
        """Yield the pairs, or the first of them, as `group_by_query` says."""
        first = self._count if limit is None else min(limit, self._count)
        return (self[place] for (place,) in self._scratch.iterate(_BY_QUERY, (first,)))

    def of_each_language(self) -> Iterator[Pair]:
        """Yield the first pair of each language."""
        return (self[place] for (place,) in self._scratch.iterate("SELECT min(place) FROM pairs GROUP BY language"))

    def write(self, path: Path) -> None:
        """Write the pairs as `.jsonl.gz`.

        Raises:
            OSError: the file cannot be written.
        """
        # No name and no time in the header: equal pairs give equal files.
        with path.open("wb") as raw, gzip.GzipFile("", "wb", _COMPRESSION, raw, mtime=0) as file:
            file.writelines(self.records())


def group_by_query(pairs: Sequence[Pair], limit: int | None = None) -> Iterable[Pair]:
    """Put pairs, or the first of them, of equal query next to each other, otherwise in their order.

    So prompt prefixes repeat.
    """
    if isinstance(pairs, Spool):
        return pairs.grouped(limit)
    first: dict[str, int] = {}
    return sorted(islice(pairs, limit), key=lambda pair: first.setdefault(pair.query, len(first)))


def iter_normalised(path: Path) -> Iterator[Pair]:
    """Yield the pairs of a file made by `Spool.write`, one at a time.

    Raises:
        InputError: the file is missing or damaged.
    """
    for record in records(path, regular=True):
        if isinstance(record, BadLine):
            raise InputError(record.prefix + record.cause, path=path, line=record.line)
        try:
            yield Pair.model_validate(record.value)
        except ValueError as error:
            raise InputError(f"is not a normalised pair: {error}", path=path, line=record.line) from None


def _pair(record: bytes) -> Pair:
    return Pair.model_validate(loads(record))
