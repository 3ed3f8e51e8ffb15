"""Pairs from what Python programs hold: mappings, a DataFrame."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator, Mapping
from typing import Any

from agent.checks import check_type
from agent.datasets.fields import MAPPING_EXAMPLE, Fields
from agent.datasets.reading import Dataset
from agent.errors import InputError, UsageError
from agent.types import Pair

_TAKEN = (
    "an iterable of Pair or of mappings with query and code, a DataFrame with such columns, or what "
    "agent.read_pairs(FILE) returns"
)
Pairs = Iterable[Pair | Mapping[str, Any]] | AsyncIterable[Pair | Mapping[str, Any]] | Dataset | Any
"""What is taken for pairs; `Any` is a DataFrame of pandas."""


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
    if isinstance(given, Dataset):
        if mapping:
            raise UsageError("mapping: these pairs are read already; pass the mapping to read_pairs")
        return given
    if isinstance(given, AsyncIterable):
        return _awaited(given, fields)
    if _is_frame(given):
        frame: Any = given
        given = frame.astype(object).where(frame.notna(), None).to_dict("records")
    if isinstance(given, str | bytes | Mapping | Pair) or not isinstance(given, Iterable):
        raise UsageError(f"pairs={given!r:.60} is of type {type(given).__name__}; pairs takes {_TAKEN}")
    pairs = _each(given, fields)
    return list(pairs) if isinstance(given, list | tuple) else pairs


def _is_frame(given: Any) -> bool:
    return hasattr(given, "columns") and callable(getattr(given, "to_dict", None)) and hasattr(given, "notna")


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
        kind, taken = type(item).__name__, "a Pair, or a mapping with query and code"
        raise UsageError(f"pair {number}: {item!r:.60} is of type {kind}; a pair is {taken}")
    try:
        return fields.pair({name: None if _missing(value) else value for name, value in item.items()}, number)
    except ValueError as error:
        raise InputError(f"pair {number}: {error}") from error


def _missing(value: Any) -> bool:
    """Say whether a value is NaN, as pandas has it where there is none."""
    return isinstance(value, float) and math.isnan(value)
