"""Pairs from files, with all that is wrong found before anything is spent; and the form that a run keeps of them."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, overload

from agent.datasets.encoding import dumps, loads
from agent.datasets.formats import files_of, records
from agent.datasets.sources import STDIN, BadLine, Record, shown
from agent.errors import ConfigError, InputError
from agent.types import Pair
from agent.wording import check

# Ours first; `idx` and `doc` are CoSQA's, `pair-idx` and `pair-index` CoSQA+'s.
KNOWN: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "idx", "pair-idx", "pair-index"),
    "query": ("query", "doc"),
    "code": ("code",),
    "language": ("language",),
    "context": ("context",),
}

_MAX_DEPTH = 100
_TYPE_NAMES = {dict: "an object", list: "a list", bool: "true or false", int: "a number", float: "a number"}


def parse_mapping(text: str) -> dict[str, str]:
    """Parse `query=FIELD,code=FIELD[,id=…,language=…,context=…,label=…]`.

    Raises:
        ConfigError: an entry without `=`, a repeated name, an empty field.
    """
    mapping: dict[str, str] = {}
    for entry in text.split(","):
        name, equals, field = (part.strip() for part in entry.partition("="))
        if not equals or not field:
            raise ConfigError(f"--map: {entry.strip()!r} is not NAME=FIELD, as in query=question,code=snippet")
        if name in mapping:
            raise ConfigError(f"--map: {name!r} is given twice")
        mapping[name] = field
    return mapping


class Fields:
    """Turns one record of a file into a pair.

    Raises:
        ConfigError: a name is mapped that a pair does not have.
    """

    def __init__(self, mapping: Mapping[str, str] | None = None) -> None:
        mapping = dict(mapping or {})
        self._label = mapping.pop("label", None)
        for name in mapping:
            if name not in KNOWN:
                raise ConfigError(f"--map: a pair has no {name!r}; it has {', '.join(KNOWN)}, and a label as gold")
        self._names = {**KNOWN, **{name: (field,) for name, field in mapping.items()}}

    def pair(self, record: Any, number: int) -> Pair:
        """Return the pair of a record; `number` is its id where it has none of its own.

        Every field that is not part of the pair goes to `meta`.

        Raises:
            ValueError: the cause, in words for the user.
        """
        if not isinstance(record, dict):
            raise ValueError(f"an object with query and code expected, not {_type_name(record)}")
        taken = {name: field for name, fields in self._names.items() if (field := _present(record, fields))}
        language = self._text(record, taken, "language")
        gold = {} if self._label is None or self._label not in record else {"label": record[self._label]}
        return Pair(
            id=_identifier(record, taken, number),
            query=self._required(record, taken, "query"),
            code=self._required(record, taken, "code"),
            language="python" if language is None else language,
            context=self._text(record, taken, "context"),
            meta={**_meta(record, {*taken.values(), *self._unfilled(record)}), **gold},
        )

    def identity(self, record: Any, number: int) -> tuple[str, str | None]:
        """Return id and query (None where it has none) of a record about a pair, such as its label.

        Raises:
            ValueError: the cause, in words for the user.
        """
        if not isinstance(record, dict):
            raise ValueError(f"an object expected, not {_type_name(record)}")
        taken = {name: field for name in ("id", "query") if (field := _present(record, self._names[name]))}
        return _identifier(record, taken, number), self._text(record, taken, "query")

    def _required(self, record: Mapping[str, Any], taken: Mapping[str, str], name: str) -> str:
        value = self._text(record, taken, name)
        if value is None:
            if (null := next((field for field in self._names[name] if field in record), None)) is not None:
                raise ValueError(f"no {name}: field {null!r} is empty or null")
            wanted = " or ".join(repr(field) for field in self._names[name])
            present = ", ".join(map(repr, list(record)[:12])) or "none"
            cause = f"no {name}: field {wanted} is missing (fields here: {present})"
            raise ValueError(cause + self._example(record, taken))
        if not value.strip():
            raise ValueError(f"the {name} is empty (field {taken[name]!r})")
        return value

    def _example(self, record: Mapping[str, Any], taken: Mapping[str, str]) -> str:
        """Return a mapping that may be meant: the longest free text is the code, that of most words the query."""
        wanted = [name for name in ("code", "query") if name not in taken and self._names[name] == KNOWN[name]]
        used = {*taken.values(), "meta"}
        texts = {name: text for name, text in record.items() if isinstance(text, str) and name not in used}
        found: dict[str, str] = {}
        for name in wanted[: len(texts)]:
            found[name] = max(texts, key=lambda field: len(texts[field].split() if name == "query" else texts[field]))
            del texts[found[name]]
        if not found:
            return ""
        given = ",".join(f"{name}={field}" for name, field in reversed(found.items()))
        return f"; say which it is, for example --map {shlex.quote(given)}"

    def _unfilled(self, record: Mapping[str, Any]) -> Iterator[str]:
        """Yield the fields that would be of the pair and are null."""
        return (field for fields in self._names.values() for field in fields if record.get(field, ...) is None)

    def _text(self, record: Mapping[str, Any], taken: Mapping[str, str], name: str) -> str | None:
        value = record[taken[name]] if name in taken else None
        if value is None or isinstance(value, str):
            return value
        raise ValueError(f"{taken[name]!r} is {_type_name(value)}; the {name} must be text")


def _present(record: Mapping[str, Any], fields: Iterable[str]) -> str | None:
    return next((field for field in fields if record.get(field) is not None), None)


def _identifier(record: Mapping[str, Any], taken: Mapping[str, str], number: int) -> str:
    if "id" not in taken:
        return str(number)
    value = record[taken["id"]]
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{taken['id']!r} is {_type_name(value)}; an id must be text or a whole number")
    if value == "":
        raise ValueError("the id is empty")
    return str(value)


def _meta(record: Mapping[str, Any], taken: Iterable[str]) -> dict[str, Any]:
    own = record.get("meta")
    if isinstance(own, str):  # of a table, whose columns have any name
        own = {"meta": own}
    if own is not None and not isinstance(own, dict):
        raise ValueError(f"'meta' is {_type_name(own)}; an object expected")
    skipped = {"meta", *taken}
    meta = {field: value for field, value in record.items() if field not in skipped}
    for field, value in (own or {}).items():
        if field in meta and meta[field] != value:
            raise ValueError(f"{field!r} stands both beside and inside 'meta', with different values")
        meta[field] = value
    if _deeper_than(meta, _MAX_DEPTH):
        raise ValueError(f"the fields beside query and code are nested more than {_MAX_DEPTH} levels deep")
    return meta


def _deeper_than(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    if levels == 0:
        return True
    children = value.values() if isinstance(value, dict) else value
    return any(_deeper_than(child, levels - 1) for child in children)


def _type_name(value: Any) -> str:
    return "null" if value is None else _TYPE_NAMES.get(type(value), "text")


_LISTED_BAD_LINES = 5
# Of 6,500 real snippets none longer than this is a single line.
_LONG_ONE_LINER = 80
_LOST_NEWLINES_SHARE = 0.01
# Level 3 takes a third of the default's time and 10% more space.
_COMPRESSION = 3


@dataclass(frozen=True)
class Dataset(Sequence[Pair]):
    """The pairs of one or more files, in their order.

    `bad_lines` were skipped; `notes` are warnings for the user.
    """

    paths: tuple[Path, ...]
    pairs: Sequence[Pair] = dataclasses.field(repr=False)
    bad_lines: tuple[BadLine, ...] = ()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.pairs)

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Pair]: ...
    def __getitem__(self, index: int | slice) -> Pair | Sequence[Pair]:
        return self.pairs[index]


def read_pairs(
    paths: str | Path | Iterable[str | Path],
    *,
    mapping: Mapping[str, str] | str | None = None,
    on_bad_line: Literal["fail", "skip"] = "fail",
) -> Dataset:
    """Read files, or patterns (`*`, `?`, `[`, `**`) of their names: all of them are checked before this returns.

    A file is `.jsonl`, `.json`, `.csv`, `.tsv` or `.parquet`, also with `.gz`, or the folder of a Hugging Face dataset;
    `-` is standard input, of JSON lines. `mapping` names the fields of query, code, id, language and context where they
    are not ours or a known dataset's; as text it is what `parse_mapping` takes.

    Raises:
        InputError: a file cannot be read, holds no pairs, or (unless skipped) has bad lines; an id comes twice.
        ConfigError: the mapping names something a pair does not have.
        ExtraMissing: Parquet or a dataset's folder without the extra `io`.
    """
    check("paths", paths, (str, Path, Iterable), "a file, a pattern, or a list of them")
    check("mapping", mapping, (str, Mapping), "a mapping such as {'query': 'question'}")
    files = files_of([paths] if isinstance(paths, str | Path) else paths)
    reader = _Reader(parse_mapping(mapping) if isinstance(mapping, str) else mapping or {})
    for file in files:
        reader.read(file)
    reader.check(skip=on_bad_line == "skip")
    return Dataset(
        paths=tuple(files),
        pairs=reader.pairs,
        bad_lines=tuple(reader.bad_lines),
        notes=tuple(_notes(reader.pairs)),
    )


class _Reader:
    """Collects pairs and bad lines of files."""

    def __init__(self, mapping: Mapping[str, str]) -> None:
        self.pairs: list[Pair] = []
        self.bad_lines: list[BadLine] = []
        self._fields = Fields(mapping)
        self._unseen = dict(mapping)
        self._first_fields: list[str] = []
        self._places: dict[str, tuple[Path, int]] = {}

    def read(self, path: Path) -> None:
        """Take the records of a file.

        Raises:
            InputError: it cannot be read, or has none.
        """
        before = len(self.pairs) + len(self.bad_lines)
        for record in records(path):
            if isinstance(record, BadLine):
                self.bad_lines.append(dataclasses.replace(record, path=path))
            else:
                self._add(record, path)
        if len(self.pairs) + len(self.bad_lines) == before:
            if path.is_file() and path.stat().st_size == 0:
                raise InputError("the file is empty", path=path)
            expected = "a JSON object per pair is expected, or a header and a row per pair"
            raise InputError(f"holds no pairs; {expected}", path=shown(path))

    def _add(self, record: Record, path: Path) -> None:
        if isinstance(record.value, dict):
            self._first_fields = self._first_fields or list(record.value)
            self._unseen = {name: field for name, field in self._unseen.items() if field not in record.value}
        try:
            pair = self._fields.pair(record.value, record.number)
            if (earlier := self._places.get(pair.id)) is not None:
                shortened = pair.id if len(pair.id) <= 60 else pair.id[:60] + "…"
                same = earlier[0] == path
                place = f"line {earlier[1]}" if same else f"{shown(earlier[0])}:{earlier[1]}"
                where = "" if same else " over all files"
                raise ValueError(f"the id {shortened!r} is that of {place} too; ids must differ{where}")
        except ValueError as error:
            self.bad_lines.append(BadLine(record.line, record.prefix + str(error), path))
        else:
            self._places[pair.id] = (path, record.line)
            self.pairs.append(pair)

    def check(self, *, skip: bool) -> None:
        """Fail on a mapping to fields that no line has, and on bad lines that are not to be skipped.

        Raises:
            InputError: in either case, or where there is nothing but bad lines.
        """
        if self._first_fields and self._unseen:
            name, field = next(iter(self._unseen.items()))
            fields = ", ".join(map(repr, self._first_fields[:20]))
            raise InputError(f"--map {name}={field}: no line has a field {field!r}; there are {fields}")
        if self.bad_lines and not (skip and self.pairs):
            first = self.bad_lines[0]
            raise InputError(self._complaint(), path=shown(first.path or STDIN), line=first.line)

    def _complaint(self) -> str:
        first, *others = self.bad_lines
        lines = [first.cause, *(f"  {bad}" for bad in others[: _LISTED_BAD_LINES - 1])]
        hidden = len(self.bad_lines) - _LISTED_BAD_LINES
        if hidden > 0:
            lines.append(f"  and {hidden} more bad lines")
        total = len(self.bad_lines) + len(self.pairs)
        remedy = "mend them, or leave them out with --on-bad-line skip" if self.pairs else "none holds a pair"
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


def as_kept(pair: Pair) -> Pair:
    """Return a pair as it will be when a run's input is read again.

    Raises:
        InputError: `meta` that JSON has no form for.
    """
    return Pair.model_validate(loads(_line(pair)))


def _line(pair: Pair) -> bytes:
    record = {"id": pair.id, "query": pair.query, "code": pair.code, "language": pair.language}
    context = {} if pair.context is None else {"context": pair.context}
    try:
        return dumps({**record, **context, "meta": pair.meta}) + b"\n"
    except (TypeError, ValueError) as error:
        raise InputError(f"the meta of pair {pair.id[:60]!r} cannot be written as JSON: {error}") from None


def _lines(pairs: Iterable[Pair]) -> Iterator[bytes]:
    seen: set[str] = set()
    for pair in pairs:
        if pair.id in seen:
            raise InputError(f"the id {pair.id[:60]!r} comes twice among the pairs; ids must differ")
        seen.add(pair.id)
        yield _line(pair)
