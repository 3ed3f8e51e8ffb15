"""Pairs from a file, with all that is wrong found before anything is spent; and the form that a run keeps of them."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agent.datasets.encoding import dumps
from agent.datasets.fields import Fields
from agent.datasets.sources import BadLine, Record, records
from agent.errors import ConfigError, InputError
from agent.types import Pair

_LISTED_BAD_LINES = 5
# Of 6,500 real snippets none longer than this is a single line.
_LONG_ONE_LINER = 80
_LOST_NEWLINES_SHARE = 0.01
# Level 3 takes a third of the default's time and 10% more space.
_COMPRESSION = 3


@dataclass(frozen=True)
class Dataset:
    """The pairs of a file.

    `pairs` are those to annotate, `all_pairs` what the whole file holds: they differ under a limit, so that a run
    begun with one can go on without it. `bad_lines` were skipped; `notes` are warnings for the user.
    """

    path: Path
    pairs: list[Pair]
    all_pairs: list[Pair]
    bad_lines: tuple[BadLine, ...] = ()
    notes: tuple[str, ...] = ()


def read_pairs(
    path: str | Path,
    *,
    mapping: Mapping[str, str] | None = None,
    on_bad_line: Literal["fail", "skip"] = "fail",
    limit: int | None = None,
) -> Dataset:
    """Read `.jsonl`, `.jsonl.gz` or a `.json` array; the whole file is checked, also under a `limit`.

    `mapping` names the fields of query, code, id, language and context where they are not ours or a known dataset's.

    Raises:
        InputError: the file cannot be read, holds no pairs, or (unless skipped) has bad lines.
        ConfigError: the mapping names something a pair does not have, or the limit is below 1.
    """
    path = Path(path)
    if limit is not None and limit < 1:
        raise ConfigError(f"--limit {limit}: at least 1 pair is needed")
    reader = _Reader(path, mapping or {})
    for record in records(path):
        reader.add(record)
    reader.check(skip=on_bad_line == "skip")
    pairs = reader.pairs
    return Dataset(
        path=path,
        pairs=pairs if limit is None else pairs[:limit],
        all_pairs=pairs,
        bad_lines=tuple(reader.bad_lines),
        notes=tuple(_notes(pairs)),
    )


class _Reader:
    """Collects pairs and bad lines of one file."""

    def __init__(self, path: Path, mapping: Mapping[str, str]) -> None:
        self.pairs: list[Pair] = []
        self.bad_lines: list[BadLine] = []
        self._path = path
        self._fields = Fields(mapping)
        self._unseen = dict(mapping)
        self._first_fields: list[str] = []
        self._lines_of_ids: dict[str, int] = {}

    def add(self, record: Record | BadLine) -> None:
        if isinstance(record, BadLine):
            self.bad_lines.append(record)
            return
        if isinstance(record.value, dict):
            self._first_fields = self._first_fields or list(record.value)
            self._unseen = {name: field for name, field in self._unseen.items() if field not in record.value}
        try:
            pair = self._fields.pair(record.value, record.number)
            if (earlier := self._lines_of_ids.get(pair.id)) is not None:
                shortened = pair.id if len(pair.id) <= 60 else pair.id[:60] + "…"
                raise ValueError(f"the id {shortened!r} is that of line {earlier} too; ids must differ")
        except ValueError as error:
            self.bad_lines.append(BadLine(record.line, record.prefix + str(error)))
        else:
            self._lines_of_ids[pair.id] = record.line
            self.pairs.append(pair)

    def check(self, *, skip: bool) -> None:
        """Fail on no pairs, on a mapping to fields that no line has, on bad lines that are not to be skipped."""
        if self._first_fields and self._unseen:
            name, field = next(iter(self._unseen.items()))
            fields = ", ".join(map(repr, self._first_fields[:20]))
            raise InputError(
                f"--map {name}={field}: no line has a field {field!r}; there are {fields}", path=self._path
            )
        if self.bad_lines and not (skip and self.pairs):
            raise InputError(self._complaint(), path=self._path, line=self.bad_lines[0].line)
        if not self.pairs:
            if self._path.stat().st_size == 0:
                raise InputError("the file is empty", path=self._path)
            raise InputError("holds no pairs; one JSON object per line is expected", path=self._path)

    def _complaint(self) -> str:
        first, *others = self.bad_lines
        lines = [first.cause]
        lines += [f"  line {bad.line}: {bad.cause}" for bad in others[: _LISTED_BAD_LINES - 1]]
        hidden = len(self.bad_lines) - _LISTED_BAD_LINES
        if hidden > 0:
            lines.append(f"  and {hidden} more bad lines")
        total = len(self.bad_lines) + len(self.pairs)
        remedy = "mend them, or leave them out with --on-bad-line skip" if self.pairs else "no line holds a pair"
        lines.append(f"{len(self.bad_lines)} of {total} lines are bad: {remedy}")
        return "\n".join(lines)


def _notes(pairs: list[Pair]) -> list[str]:
    python = [pair for pair in pairs if pair.language == "python"]
    codes = (pair.code.strip() for pair in python)
    lost = sum(len(code) > _LONG_ONE_LINER and "\n" not in code and "\r" not in code for code in codes)
    if not python or lost / len(python) < _LOST_NEWLINES_SHARE:
        return []
    return [
        f"{lost / len(python):.0%} of the snippets ({lost} of {len(python)}) are a single line of more than "
        f"{_LONG_ONE_LINER} characters: their newlines were probably lost, and most of them will not parse"
    ]


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
            record = {"id": pair.id, "query": pair.query, "code": pair.code, "language": pair.language}
            context = {} if pair.context is None else {"context": pair.context}
            yield dumps({**record, **context, "meta": pair.meta}) + b"\n"
        except (TypeError, ValueError) as error:
            raise InputError(f"the meta of pair {pair.id[:60]!r} cannot be written as JSON: {error}") from None
