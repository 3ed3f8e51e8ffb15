"""JSON that survives hostile text: orjson where it can, the standard library where orjson refuses or loses digits."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from typing import Any, NoReturn

import orjson

# orjson reads whole numbers beyond 64 bits as floats, which would change ids.
_LONG_NUMBER = re.compile(rb"[0-9]{19}")


def dumps(value: Any, *, indent: bool = False) -> bytes:
    """Encode a value as JSON (UTF-8, lone surrogates as escapes): on one line without newline, or indented by 2.

    Raises:
        TypeError: a value that JSON has no form for.
        ValueError: NaN or infinity among numbers beyond 64 bits, or a value nested too deeply.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 if indent else None)
    except TypeError:
        # Lone surrogates, long numbers, keys that are not text: the standard library has a form for each.
        try:
            layout: dict[str, Any] = {"indent": 2} if indent else {"separators": (",", ":")}
            return json.dumps(value, ensure_ascii=True, allow_nan=False, **layout).encode("ascii")
        except RecursionError:
            raise ValueError("nested too deeply") from None


def loads(data: bytes) -> Any:
    """Decode one JSON value from UTF-8.

    Raises:
        ValueError: the cause, in words for the user.
    """
    if _LONG_NUMBER.search(data) is None:
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(data)
    try:
        # what a line lacks at its end would be missed at the beginning of the next
        return DECODER.decode(data.decode("utf-8").rstrip("\r\n"))
    except (ValueError, RecursionError) as error:
        raise ValueError(json_problem(error)) from None


def json_problem(error: Exception) -> str:
    """Say what is wrong with JSON that could not be decoded, and at which byte or column of its line."""
    if isinstance(error, UnicodeDecodeError):
        column = error.start - error.object.rfind(b"\n", 0, error.start)
        return f"byte 0x{error.object[error.start]:02x} (column {column}) is not UTF-8; convert the file to UTF-8"
    if isinstance(error, json.JSONDecodeError):
        rest = error.doc[error.pos : error.pos + 20].partition("\n")[0].rstrip("\r")
        return f"invalid JSON: {error.msg} (column {error.colno}), found {repr(rest) if rest else 'the end'}"
    return f"invalid JSON: {'nested too deeply' if isinstance(error, RecursionError) else error}"


def _refuse_constant(name: str) -> NoReturn:
    """Refuse `NaN` and `Infinity`, which Python writes but JSON does not have."""
    raise ValueError(f"{name} is not JSON (null is)")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:20]} is too large")
    return number


# Reads JSON with numbers of any length. The message of a ValueError other than `JSONDecodeError` is for the user.
DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
