"""Convert records from files and Python objects to pairs."""

from __future__ import annotations

import math
import shlex
from collections.abc import AsyncGenerator, AsyncIterable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from agent.datasets.pair_store import PairStore
from agent.datasets.values import describe, parse_id
from agent.errors import ConfigError, InputError, UsageError
from agent.types import Origin, Pair, check_type

Names = Mapping[str, tuple[str, ...]]
# This package's own names come first. `idx` and `doc` are from CoSQA; `pair-idx` and `pair-index` are from CoSQA+.
KNOWN: Names = {
    "id": ("id", "idx", "pair-idx", "pair-index"),
    "query": ("query", "doc"),
    "code": ("code",),
    "language": ("language",),
    "context": ("context",),
}
# Files of queries alone, and files of snippets alone.
QUERIES: Names = {
    **KNOWN,
    "id": ("id", "_id", "query-id", "query-idx", "idx"),
    "query": ("query", "doc", "text", "question"),
}
CODES: Names = {**KNOWN, "id": ("id", "_id", "code-idx", "idx")}

# Usual names of the query and code fields in other datasets. An error message suggests the first name that occurs in
# the record.
_USUAL: Mapping[str, tuple[str, ...]] = {
    "query": ("question", "title", "doc", "search_query", "query"),
    "code": ("snippet", "function", "answer", "body", "code"),
}

FieldMap = Mapping[str, str] | str | None
"""Names of fields, as a mapping or as the text of `--map`."""
MAPPING_EXAMPLE = "a mapping such as {'query': 'question'}"
_MAX_DEPTH = 100


def parse_mapping(text: str) -> dict[str, str]:
    """Parse a mapping of the form `query=FIELD,code=FIELD[,id=…,language=…,context=…,label=…]`.

    Raises:
        ConfigError: an entry has no `=`, a repeated name or an empty field.
    """
    mapping: dict[str, str] = {}
    for entry in text.split(","):
        name, equals, field = (part.strip() for part in entry.partition("="))
        if not equals or not field:
            raise ConfigError(
                f"--map: {entry.strip()!r} does not have the form NAME=FIELD. Example: query=question,code=snippet"
            )
        if name in mapping:
            raise ConfigError(f"--map: {name!r} appears twice")
        mapping[name] = field
    return mapping


class Fields:
    """The names of the fields in a file, and the conversion of its records to pairs.

    `mapping` maps names in `known` and `label` to fields of the records; a string is parsed with `parse_mapping`.
    `names` has the fields of each name. A mapped name has only the mapped field, unless `optional` is set.

    Raises:
        ConfigError: the mapping is malformed or has an unknown name.
    """

    def __init__(self, mapping: FieldMap = None, known: Names = KNOWN, *, optional: bool = False) -> None:
        mapping = parse_mapping(mapping) if isinstance(mapping, str) else dict(mapping or {})
        self._unseen = dict(mapping)
        self._first_fields: list[str] = []
        self._label = mapping.get("label")
        for name in mapping:
            if name not in (*known, "label"):
                raise ConfigError(f"--map: unknown pair field {name!r}. Choose from {', '.join(known)} and label")
        known = {**known, "label": ("label",)}
        mapped = {name: (field, *(known[name] if optional else ())) for name, field in mapping.items()}
        self.names: Names = {**known, **mapped}
        self._known = known

    def has(self, name: str, columns: Container[str]) -> bool:
        """Return whether a field with this name is one of the columns."""
        return any(field in columns for field in self.names[name])

    def see(self, record: Mapping[str, Any]) -> None:
        """Note the fields of a record for `check_mapping`."""
        self._first_fields = self._first_fields or list(record)
        if self._unseen:
            self._unseen = {name: field for name, field in self._unseen.items() if field not in record}

    def build_pair(self, record: Any, number: int, *, needs_query: bool = True) -> Pair:
        """Build a pair from a record. `number` is the default id.

        The field `origin` becomes the origin of the pair if it is an object with the fields of `Origin`. All other
        fields of the record are stored in `meta`. Unless `needs_query` is set, the query may be missing.

        Raises:
            ValueError: the record is not a valid pair. The message is suitable for users.
        """
        if not isinstance(record, dict):
            raise ValueError(f"expected an object with query and code, not {describe(record)}")
        self.see(record)
        names = {name: fields for name, fields in self.names.items() if name != "label"}
        present_fields = {name: field for name, fields in names.items() if (field := find_field(record, fields))}
        null = {field for fields in names.values() for field in fields if record.get(field, ...) is None}
        language = self._get_text(record, present_fields, "language")
        gold = {} if self._label is None or self._label not in record else {"label": record[self._label]}
        origin = Origin.parse(record.get("origin"))
        has_query = needs_query or "query" in present_fields
        return Pair(
            id=_read_id(record, present_fields, number),
            query=self._require_text(record, present_fields, "query") if has_query else "",
            code=self._require_text(record, present_fields, "code"),
            language="python" if language is None else language,
            context=self._get_text(record, present_fields, "context"),
            origin=origin,
            meta={**_collect_meta(record, {*present_fields.values(), *null, *(["origin"] if origin else ())}), **gold},
        )

    def check_mapping(self) -> None:
        """Check that every mapped field has occurred in at least one record, if there was one.

        Raises:
            InputError: a mapped field is missing from every record.
        """
        if self._first_fields and self._unseen:
            name, field = next(iter(self._unseen.items()))
            raise InputError(
                f"--map {name}={field}: no record has a {field!r} field. "
                f"The first record has the fields {', '.join(map(repr, self._first_fields[:20]))}"
            )

    def read_identity(self, record: Any, number: int) -> tuple[str, str | None]:
        """Return the id and the query (or None) from a record that refers to a pair, such as a gold label.

        Raises:
            ValueError: the record has no valid id or query. The message is suitable for users.
        """
        if not isinstance(record, dict):
            raise ValueError(f"expected an object, not {describe(record)}")
        self.see(record)
        present_fields = {name: field for name in ("id", "query") if (field := find_field(record, self.names[name]))}
        return _read_id(record, present_fields, number), self._get_text(record, present_fields, "query")

    def _require_text(self, record: Mapping[str, Any], present_fields: Mapping[str, str], name: str) -> str:
        value = self._get_text(record, present_fields, name)
        if value is None:
            if (null := next((field for field in self.names[name] if field in record), None)) is not None:
                raise ValueError(f"no {name}: field {null!r} is empty or null")
            names = " or ".join(map(repr, self.names[name]))
            present = ", ".join(map(repr, list(record)[:12])) or "none"
            remedy = self._suggest_mapping(record, present_fields)
            raise ValueError(f"no {name}: field {names} is missing (available fields: {present}){remedy}")
        if not value.strip():
            raise ValueError(f"the {name} is empty (field {present_fields[name]!r})")
        return value

    def _suggest_mapping(self, record: Mapping[str, Any], present_fields: Mapping[str, str]) -> str:
        """Suggest a mapping for the missing fields, with the placeholder FIELD if no field has a usual name."""
        missing = [name for name in _USUAL if name not in present_fields and self.names[name] == self._known[name]]
        mapping = ",".join(f"{name}={_guess_field(record, name)}" for name in missing)
        options = f"--map {shlex.quote(mapping)} (in Python: mapping={mapping!r})"
        return f". Rename the fields, or pass {options}" if mapping else ""

    def _get_text(self, record: Mapping[str, Any], present_fields: Mapping[str, str], name: str) -> str | None:
        value = record[present_fields[name]] if name in present_fields else None
        if value is None or isinstance(value, str):
            return value
        raise ValueError(f"{present_fields[name]!r} is {describe(value)}; the {name} must be text")


def _guess_field(record: Mapping[str, Any], name: str) -> str:
    """Return the record's field that has a usual name for the query or the code, or the placeholder FIELD."""
    fields = {str(field).lower(): field for field in record}
    return next((fields[usual] for usual in _USUAL[name] if usual in fields), "FIELD")


def find_field(record: Mapping[str, Any], fields: Iterable[str]) -> str | None:
    """Return the first of the fields that is in the record and not null."""
    return next((field for field in fields if record.get(field) is not None), None)


def _read_id(record: Mapping[str, Any], present_fields: Mapping[str, str], number: int) -> str:
    if "id" not in present_fields:
        return str(number)
    try:
        return parse_id(record[present_fields["id"]])
    except ValueError as error:
        raise ValueError(f"{present_fields['id']!r} is {error}") from None


def _collect_meta(record: Mapping[str, Any], present_fields: Iterable[str]) -> dict[str, Any]:
    nested = record.get("meta")
    if isinstance(nested, str):  # a table may have an ordinary `meta` column
        nested = {"meta": nested}
    if nested is not None and not isinstance(nested, dict):
        raise ValueError(f"'meta' is {describe(nested)}; expected an object")
    skipped = {"meta", *present_fields}
    meta = {field: value for field, value in record.items() if field not in skipped}
    for field, value in (nested or {}).items():
        if meta.setdefault(field, value) != value:
            raise ValueError(f"{field!r} has one value inside 'meta' and a different one outside")
    if _is_nested_deeper(meta, _MAX_DEPTH):
        raise ValueError(f"the fields other than query and code are nested more than {_MAX_DEPTH} levels deep")
    return meta


def _is_nested_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    if levels == 0:
        return True
    children = value.values() if isinstance(value, dict) else value
    return any(_is_nested_deeper(child, levels - 1) for child in children)


_EXPECTED = (
    "an iterable of Pair objects or of mappings with query and code, a DataFrame with query and code columns, or the "
    "result of agent.read_pairs(FILE)"
)
# `Any` represents a pandas DataFrame.
Pairs = Iterable[Pair | Mapping[str, Any]] | AsyncIterable[Pair | Mapping[str, Any]] | PairStore | Any


def as_pairs(items: Pairs, mapping: Mapping[str, str] | str | None = None) -> Iterable[Pair] | AsyncIterable[Pair]:
    """Convert Python objects to pairs. Returns a list for a DataFrame, list or tuple, and otherwise a lazy iterable.

    If `items` is a `PairStore`, it is returned unchanged. Otherwise, each item has the same fields as a line of a pairs
    file. `mapping` renames fields in the same way as in `read_pairs`. A DataFrame may have its ids in its index. If an
    item has no id, its position in `items` (counted from 1) is used.

    Raises:
        UsageError: `items` has an unsupported type, or is a `PairStore` with a `mapping`.
        ConfigError: the mapping is malformed or has an unknown pair field.
        InputError: an item is not a valid pair, or a mapped field is missing from every item. A lazy iterable raises
            this error during iteration.
    """
    check_type("mapping", mapping, (str, Mapping), MAPPING_EXAMPLE)
    fields = Fields(mapping)
    if isinstance(items, PairStore):
        if mapping:
            raise UsageError("mapping: these pairs have already been read. Pass the mapping to read_pairs")
        return items
    if isinstance(items, AsyncIterable):
        return _convert_async_items(items, fields)
    if hasattr(items, "notna") and hasattr(items, "columns"):
        frame = _restore_ids(items, fields.names["id"])
        items = frame.astype(object).where(frame.notna(), None).to_dict("records")
    if isinstance(items, str | bytes | Mapping | Pair) or not isinstance(items, Iterable):
        raise UsageError(f"pairs={items!r:.60} is of type {type(items).__name__}; expected {_EXPECTED}")
    pairs = _convert_items(items, fields)
    return list(pairs) if isinstance(items, list | tuple) else pairs


def _restore_ids(frame: Any, names: Sequence[str]) -> Any:
    """Move the ids of a DataFrame from its index to a column.

    An index has ids if it contains text or has the name of an id field.
    """
    if any(name in frame.columns for name in names):
        return frame
    if frame.index.name is None and frame.index.inferred_type == "string":
        frame = frame.rename_axis(names[0])
    levels = [name for name in frame.index.names if name in names]
    return frame.reset_index(level=levels) if levels else frame


def _convert_items(items: Iterable[Any], fields: Fields) -> Iterator[Pair]:
    for number, item in enumerate(items, start=1):
        yield _convert_item(item, number, fields)
    fields.check_mapping()


async def _convert_async_items(items: AsyncIterable[Any], fields: Fields) -> AsyncGenerator[Pair, None]:
    number = 0
    async for item in items:
        number += 1
        yield _convert_item(item, number, fields)
    fields.check_mapping()


def _convert_item(item: Any, number: int, fields: Fields) -> Pair:
    if isinstance(item, Pair):
        return item
    for method in ("to_dict", "_asdict"):  # rows from iterating over a DataFrame
        if not isinstance(item, Mapping) and callable(getattr(item, method, None)):
            item = getattr(item, method)()
    if not isinstance(item, Mapping):
        raise UsageError(
            f"pair {number}: {item!r:.60} is of type {type(item).__name__}; "
            "expected a Pair or a mapping with query and code"
        )
    # pandas uses NaN for a missing value
    values = {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in item.items()}
    try:
        return fields.build_pair(values, number)
    except ValueError as error:
        raise InputError(f"pair {number}: {error}") from error
