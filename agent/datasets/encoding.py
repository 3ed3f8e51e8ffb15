"""Encode and decode JSON with orjson, or with the standard library if orjson fails or would lose digits."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from typing import Any, NoReturn

import orjson

# orjson parses integers of more than 64 bits as floats, which would change ids.
_LONG_NUMBER = re.compile(rb"[0-9]{19}")


def dumps(value: Any, *, indent: bool = False) -> bytes:
    """Encode a value as JSON in UTF-8, on one line or indented by 2 spaces. Lone surrogates are escaped.

    Raises:
        TypeError: a value cannot be represented in JSON.
        ValueError: the value is nested too deeply, or contains both a non-finite number and an integer of more than 64
            bits.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 if indent else None)
    except TypeError:
        # Unlike orjson, the standard library encodes lone surrogates, long integers and keys that are not strings.
        try:
            layout: dict[str, Any] = {"indent": 2} if indent else {"separators": (",", ":")}
            return json.dumps(value, ensure_ascii=True, allow_nan=False, **layout).encode("ascii")
        except RecursionError:
            raise ValueError("nested too deeply") from None


def loads(data: bytes) -> Any:
    """Decode one JSON value from UTF-8.

    Raises:
        ValueError: the data is not valid JSON. The message is suitable for users.
    """
    if _LONG_NUMBER.search(data) is None:
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(data)
    try:
        # without `rstrip`, an error at the end of the line would be reported for the next line
        return DECODER.decode(data.decode("utf-8").rstrip("\r\n"))
    except (ValueError, RecursionError) as error:
        raise ValueError(describe_json_error(error)) from None


def describe_json_error(error: Exception) -> str:
    """Describe a JSON error, including the column and the invalid byte or text."""
    if isinstance(error, UnicodeDecodeError):
        column = error.start - error.object.rfind(b"\n", 0, error.start)
        return f"byte 0x{error.object[error.start]:02x} (column {column}) is not UTF-8; convert the file to UTF-8"
    if isinstance(error, json.JSONDecodeError):
        rest = error.doc[error.pos : error.pos + 20].partition("\n")[0].rstrip("\r")
        found = repr(rest) if rest else "the end of the line"
        return f"invalid JSON: {error.msg} (column {error.colno}), found {found}"
    return f"invalid JSON: {'nested too deeply' if isinstance(error, RecursionError) else error}"


def _refuse_constant(name: str) -> NoReturn:
    """Reject `NaN` and `Infinity`, which Python writes but JSON does not allow."""
    raise ValueError(f"{name} is not valid JSON; use null")


def _parse_finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:20]} is too large")
    return number


# Parses numbers of any length. Its ValueErrors have messages for users, except `JSONDecodeError`.
DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_parse_finite)
