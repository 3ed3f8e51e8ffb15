"""Pairs from files, with all that is wrong found before anything is spent."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from agent.datasets.formats import files_of, records
from agent.datasets.sources import STDIN, BadLine, Record, shown
from agent.datasets.spool import Spool
from agent.errors import ConfigError, InputError
from agent.types import Pair
from agent.wording import check, counted

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


class Dataset(Spool):
    """The pairs of one or more files (`paths`), in their order.

    `bad_lines` were skipped; `notes` are warnings for the user.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        super().__init__()
        self.paths = tuple(paths)
        self.bad_lines: list[BadLine] = []
        self.notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Dataset of {counted(len(self), 'pair')} from {', '.join(map(str, self.paths))}>"


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
    reader = _Reader(files, parse_mapping(mapping) if isinstance(mapping, str) else mapping or {})
    for number in range(len(files)):
        reader.read(number)
    reader.check(skip=on_bad_line == "skip")
    reader.pairs.notes = reader.notes()
    return reader.pairs


class _Reader:
    """Collects pairs and bad lines of files."""

    def __init__(self, files: Sequence[Path], mapping: Mapping[str, str]) -> None:
        self.pairs = Dataset(files)
        self._fields = Fields(mapping)
        self._unseen = dict(mapping)
        self._first_fields: list[str] = []
        self._python = self._lost = 0

    def read(self, number: int) -> None:
        """Take the records of the file of this number.

        Raises:
            InputError: it cannot be read, or has none.
        """
        path, before = self.pairs.paths[number], self._lines
        for record in records(path):
            if isinstance(record, BadLine):
                self.pairs.bad_lines.append(dataclasses.replace(record, path=path))
            else:
                self._add(record, number)
        if self._lines == before:
            if path.is_file() and path.stat().st_size == 0:
                raise InputError("the file is empty", path=path)
            expected = "a JSON object per pair is expected, or a header and a row per pair"
            raise InputError(f"holds no pairs; {expected}", path=shown(path))

    @property
    def _lines(self) -> int:
        return len(self.pairs) + len(self.pairs.bad_lines)

    def _add(self, record: Record, number: int) -> None:
        if isinstance(record.value, dict):
            self._first_fields = self._first_fields or list(record.value)
            self._unseen = {name: field for name, field in self._unseen.items() if field not in record.value}
        try:
            pair = self._fields.pair(record.value, record.number)
            if not self.pairs.put(pair, number, record.line):
                raise ValueError(self._twice(pair.id, number))
        except ValueError as error:
            self.pairs.bad_lines.append(BadLine(record.line, record.prefix + str(error), self.pairs.paths[number]))
        else:
            if pair.language == "python":
                code = pair.code.strip()
                self._python += 1
                self._lost += len(code) > _LONG_ONE_LINER and "\n" not in code and "\r" not in code

    def _twice(self, pair_id: str, number: int) -> str:
        shortened = pair_id if len(pair_id) <= 60 else pair_id[:60] + "…"
        file, line = self.pairs.origin(pair_id)
        place = f"line {line}" if file == number else f"{shown(self.pairs.paths[file])}:{line}"
        where = "" if file == number else " over all files"
        return f"the id {shortened!r} is that of {place} too; ids must differ{where}"

    def check(self, *, skip: bool) -> None:
        """Fail on a mapping to fields that no line has, and on bad lines that are not to be skipped.

        Raises:
            InputError: in either case, or where there is nothing but bad lines.
        """
        if self._first_fields and self._unseen:
            name, field = next(iter(self._unseen.items()))
            fields = ", ".join(map(repr, self._first_fields[:20]))
            raise InputError(f"--map {name}={field}: no line has a field {field!r}; there are {fields}")
        if self.pairs.bad_lines and not (skip and self.pairs):
            first = self.pairs.bad_lines[0]
            raise InputError(self._complaint(), path=shown(first.path or STDIN), line=first.line)

    def _complaint(self) -> str:
        first, *others = self.pairs.bad_lines
        lines = [first.cause, *(f"  {bad}" for bad in others[: _LISTED_BAD_LINES - 1])]
        hidden = len(self.pairs.bad_lines) - _LISTED_BAD_LINES
        if hidden > 0:
            lines.append(f"  and {hidden} more bad lines")
        remedy = "mend them, or leave them out with --on-bad-line skip" if self.pairs else "none holds a pair"
        lines.append(f"{len(self.pairs.bad_lines)} of {self._lines} lines are bad: {remedy}")
        return "\n".join(lines)

    def notes(self) -> tuple[str, ...]:
        """Return what is odd about the pairs."""
        share = self._lost / max(self._python, 1)
        if share < _LOST_NEWLINES_SHARE:
            return ()
        return (
            f"{share:.0%} of the snippets ({self._lost} of {self._python}) are a single line of more than "
            f"{_LONG_ONE_LINER} characters: their newlines were probably lost, and most of them will not parse",
        )
