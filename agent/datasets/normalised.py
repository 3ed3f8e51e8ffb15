"""The normalised input that a run keeps: our own fields, one pair per line, the same bytes for the same pairs."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from agent.datasets.encoding import dumps
from agent.datasets.sources import BadLine, records
from agent.errors import InputError
from agent.types import Pair

# Level 3 takes a third of the default's time and 10% more space.
_COMPRESSION = 3


def group_by_query(pairs: Iterable[Pair]) -> list[Pair]:
    """Put pairs of equal query next to each other, otherwise in their order, so that prompt prefixes repeat."""
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(pair.query, []).append(pair)
    return [pair for group in groups.values() for pair in group]


def normalised_sha256(pairs: Iterable[Pair]) -> str:
    """Return the hash (hex) of the normalised pairs, in their order.

    Raises:
        InputError: an id that comes twice, or `meta` that JSON has no form for.
    """
    digest = hashlib.sha256()
    for line in _lines(pairs):
        digest.update(line)
    return digest.hexdigest()


def write_normalised(path: Path, pairs: Iterable[Pair]) -> str:
    """Write pairs as `.jsonl.gz` and return their `normalised_sha256`.

    Raises:
        InputError: as `normalised_sha256`.
        OSError: the file cannot be written.
    """
    digest = hashlib.sha256()
    # No name and no time in the header: equal pairs give equal files.
    with path.open("wb") as raw, gzip.GzipFile("", "wb", _COMPRESSION, raw, mtime=0) as file:
        for line in _lines(pairs):
            digest.update(line)
            file.write(line)
    return digest.hexdigest()


def iter_normalised(path: Path) -> Iterator[Pair]:
    """Yield the pairs of a file made by `write_normalised`, one at a time.

    Raises:
        InputError: the file is missing or damaged.
    """
    for record in records(path, regular=True):
        if isinstance(record, BadLine):
            raise InputError(record.cause, path=path, line=record.line)
        try:
            yield Pair.model_validate(record.value)
        except ValueError as error:
            raise InputError(f"is not a normalised pair: {error}", path=path, line=record.line) from None


def _lines(pairs: Iterable[Pair]) -> Iterator[bytes]:
    seen: set[str] = set()
    for pair in pairs:
        if pair.id in seen:
            raise InputError(f"the id {pair.id[:60]!r} comes twice among the pairs; ids must differ")
        seen.add(pair.id)
        try:
            yield dumps(_record(pair)) + b"\n"
        except (TypeError, ValueError) as error:
            raise InputError(f"the meta of pair {pair.id[:60]!r} cannot be written as JSON: {error}") from None


def _record(pair: Pair) -> dict[str, object]:
    record: dict[str, object] = {"id": pair.id, "query": pair.query, "code": pair.code, "language": pair.language}
    if pair.context is not None:
        record["context"] = pair.context
    record["meta"] = pair.meta
    return record
