"""Turns records of files, and what Python programs hold, into pairs."""

from __future__ import annotations

import math
import shlex
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator, Mapping
from typing import Any

from agent.checks import check_type
from agent.datasets.spool import Spool
from agent.errors import ConfigError, InputError, UsageError
from agent.types import Pair

# Ours first; `idx` and `doc` are CoSQA's, `pair-idx` and `pair-index` CoSQA+'s.
KNOWN: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "idx", "pair-idx", "pair-index"),
    "query": ("query", "doc"),
    "code": ("code",),
    "language": ("language",),
    "context": ("context",),
}

# Names that other datasets give these fields; an error proposes the first of them that a record has.
_USUAL: Mapping[str, tuple[str, ...]] = {
    "query": ("question", "title", "doc", "search_query", "query"),
    "code": ("snippet", "function", "answer", "body", "code"),
}

MAPPING_EXAMPLE = "a mapping such as {'query': 'question'}"
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
    """Turns records into pairs. `mapping` names the fields; as text it is what `parse_mapping` takes.

    Raises:
        ConfigError: the mapping is malformed, or names something that a pair does not have.
    """

    def __init__(self, mapping: Mapping[str, str] | str | None = None) -> None:
        mapping = parse_mapping(mapping) if isinstance(mapping, str) else dict(mapping or {})
        self._unseen = dict(mapping)
        self._first_fields: list[str] = []
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
        self._first_fields = self._first_fields or list(record)
        if self._unseen:
            self._unseen = {name: field for name, field in self._unseen.items() if field not in record}
        taken = {name: field for name, fields in self._names.items() if (field := _present(record, fields))}
        null = {field for fields in self._names.values() for field in fields if record.get(field, ...) is None}
        language = self._text(record, taken, "language")
        gold = {} if self._label is None or self._label not in record else {"label": record[self._label]}
        return Pair(
            id=_identifier(record, taken, number),
            query=self._required(record, taken, "query"),
            code=self._required(record, taken, "code"),
            language="python" if language is None else language,
            context=self._text(record, taken, "context"),
            meta={**_meta(record, {*taken.values(), *null}), **gold},
        )

    def check_mapping(self) -> None:
        """Refuse a mapping to a field that none of the records had.

        Raises:
            InputError: names the field and those of the first record.
        """
        if self._first_fields and self._unseen:
            name, field = next(iter(self._unseen.items()))
            raise InputError(
                f"--map {name}={field}: no line has a field {field!r}; "
                f"there are {', '.join(map(repr, self._first_fields[:20]))}"
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
            wanted = " or ".join(map(repr, self._names[name]))
            present = ", ".join(map(repr, list(record)[:12])) or "none"
            raise ValueError(
                f"no {name}: field {wanted} is missing (fields here: {present}){self._remedy(record, taken)}"
            )
        if not value.strip():
            raise ValueError(f"the {name} is empty (field {taken[name]!r})")
        return value

    def _remedy(self, record: Mapping[str, Any], taken: Mapping[str, str]) -> str:
        """Name the mapping that helps, with placeholders where no field has a usual name."""
        missing = [name for name in _USUAL if name not in taken and self._names[name] == KNOWN[name]]
        mapping = ",".join(f"{name}={_usual_field(record, name)}" for name in missing)
        return f"; name the fields: --map {shlex.quote(mapping)} (in Python mapping={mapping!r})" if mapping else ""

    def _text(self, record: Mapping[str, Any], taken: Mapping[str, str], name: str) -> str | None:
        value = record[taken[name]] if name in taken else None
        if value is None or isinstance(value, str):
            return value
        raise ValueError(f"{taken[name]!r} is {_type_name(value)}; the {name} must be text")


def _usual_field(record: Mapping[str, Any], name: str) -> str:
    """Return the field of a record whose name is usual for query or code, else the placeholder FIELD."""
    fields = {str(field).lower(): field for field in record}
    return next((fields[usual] for usual in _USUAL[name] if usual in fields), "FIELD")


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
        if meta.setdefault(field, value) != value:
            raise ValueError(f"{field!r} stands both beside and inside 'meta', with different values")
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


_TAKEN = (
    "an iterable of Pair or of mappings with query and code, a DataFrame with such columns, or what "
    "agent.read_pairs(FILE) returns"
)
# What is taken for pairs; `Any` is a DataFrame of pandas.
Pairs = Iterable[Pair | Mapping[str, Any]] | AsyncIterable[Pair | Mapping[str, Any]] | Spool | Any


def pairs_of(given: Pairs, mapping: Mapping[str, str] | str | None = None) -> Iterable[Pair] | AsyncIterable[Pair]:
    """Return a data set as it is, else an iterable of pairs: of a DataFrame or a list a list, else a lazy one.

    The items have the fields of a line in a file of pairs; `mapping` names those that are called otherwise, as for
    `read_pairs`. An item without an id gets its number, from 1.

    Raises:
        UsageError: `given` is of no type that is taken, or a data set with a `mapping`.
        ConfigError: the mapping is malformed, or names something that a pair does not have.
        InputError: an item holds no pair, or none has a mapped field. A lazy iterable raises while it is read.
    """
    check_type("mapping", mapping, (str, Mapping), MAPPING_EXAMPLE)
    fields = Fields(mapping)
    if isinstance(given, Spool):
        if mapping:
            raise UsageError("mapping: these pairs are read already; pass the mapping to read_pairs")
        return given
    if isinstance(given, AsyncIterable):
        return _awaited(given, fields)
    if hasattr(given, "notna") and hasattr(given, "columns"):
        frame: Any = given
        given = frame.astype(object).where(frame.notna(), None).to_dict("records")
    if isinstance(given, str | bytes | Mapping | Pair) or not isinstance(given, Iterable):
        raise UsageError(f"pairs={given!r:.60} is of type {type(given).__name__}; pairs takes {_TAKEN}")
    pairs = _each(given, fields)
    return list(pairs) if isinstance(given, list | tuple) else pairs


def _each(items: Iterable[Any], fields: Fields) -> Iterator[Pair]:
    for number, item in enumerate(items, start=1):
        yield _pair(item, number, fields)
    fields.check_mapping()


async def _awaited(items: AsyncIterable[Any], fields: Fields) -> AsyncGenerator[Pair, None]:
    number = 0
    async for item in items:
        number += 1
        yield _pair(item, number, fields)
    fields.check_mapping()


def _pair(item: Any, number: int, fields: Fields) -> Pair:
    if isinstance(item, Pair):
        return item
    for made in ("to_dict", "_asdict"):  # rows of a DataFrame as it gives them one by one
        if not isinstance(item, Mapping) and callable(getattr(item, made, None)):
            item = getattr(item, made)()
    if not isinstance(item, Mapping):
        raise UsageError(
            f"pair {number}: {item!r:.60} is of type {type(item).__name__}; "
            "a pair is a Pair, or a mapping with query and code"
        )
    # pandas has NaN where there is no value
    values = {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in item.items()}
    try:
        return fields.pair(values, number)
    except ValueError as error:
        raise InputError(f"pair {number}: {error}") from error
