"""Pairs from what Python programs hold: mappings, a DataFrame."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator, Mapping
from typing import Any

from agent.datasets.reading import Dataset, Fields
from agent.errors import InputError, UsageError
from agent.types import Pair

_TAKEN = (
    "an iterable of Pair or of mappings with query and code, a DataFrame with such columns, or what "
    "agent.read_pairs(FILE) returns"
)
Pairs = Iterable[Pair | Mapping[str, Any]] | AsyncIterable[Pair | Mapping[str, Any]] | Dataset | Any
"""What is taken for pairs; `Any` is a DataFrame of pandas."""


def pairs_of(given: Pairs) -> Iterable[Pair] | AsyncIterable[Pair]:
    """Return a data set as it is, else an iterable of pairs: of a DataFrame or a list a list, else a lazy one.

    A mapping's fields are those of a line in a file of pairs; without an id it is its number, from 1.

    Raises:
        UsageError: it is nothing of that.
        InputError: a mapping holds no pair; where the iterable is lazy, later.
    """
    if isinstance(given, Dataset):
        return given
    if isinstance(given, AsyncIterable):
        return _awaited(given)
    if _is_frame(given):
        frame: Any = given
        given = frame.astype(object).where(frame.notna(), None).to_dict("records")
    if isinstance(given, str | bytes | Mapping | Pair) or not isinstance(given, Iterable):
        raise UsageError(f"pairs is {_kind(given)}; taken is {_TAKEN}")
    pairs = _each(given)
    return list(pairs) if isinstance(given, list | tuple) else pairs


def _is_frame(given: Any) -> bool:
    return hasattr(given, "columns") and callable(getattr(given, "to_dict", None)) and hasattr(given, "notna")


def _each(items: Iterable[Any]) -> Iterator[Pair]:
    fields = Fields()
    for number, item in enumerate(items, start=1):
        yield _pair(item, number, fields)


async def _awaited(items: AsyncIterable[Any]) -> AsyncGenerator[Pair, None]:
    fields, number = Fields(), 0
    async for item in items:
        number += 1
        yield _pair(item, number, fields)


def _pair(item: Any, number: int, fields: Fields) -> Pair:
    if isinstance(item, Pair):
        return item
    if not isinstance(item, Mapping):
        raise UsageError(f"pair {number} is {_kind(item)}; taken is a Pair, or a mapping with query and code")
    try:
        return fields.pair(dict(item), number)
    except ValueError as error:
        cause = str(error).partition("; say which it is")[0]  # that is by an option of the command line
        raise InputError(f"pair {number}: {cause}") from error


def _kind(value: Any) -> str:
    return f"{value!r:.60} ({type(value).__name__})" if isinstance(value, str | int) else f"a {type(value).__name__}"
