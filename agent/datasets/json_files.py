"""The records of JSON lines and of JSON arrays."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from agent.datasets.encoding import DECODER, bad_byte, loads, malformed
from agent.datasets.sources import BadLine, Record, raw_lines, without_bom
from agent.errors import InputError

_BLANK = re.compile(r"[ \t\r\n]*")


def json_lines(file: IO[bytes], path: Path) -> Iterator[Record | BadLine]:
    """Yield a record for each line that is not blank.

    Raises:
        InputError: as `raw_lines`.
    """
    for number, line in enumerate(raw_lines(file, path), start=1):
        if not line.strip():
            continue
        try:
            value = loads(line)
        except ValueError as error:
            yield BadLine(number, str(error))
            continue
        if isinstance(value, list):
            yield BadLine(number, "a list, where one object per line is expected; name a file of one array .json")
        else:
            yield Record(number, number, value)


def json_array(file: IO[bytes], path: Path) -> Iterator[Record | BadLine]:
    """Yield the elements of an array; or, as many datasets call their files of JSON lines `.json`, those of lines.

    Raises:
        InputError: the array is malformed.
    """
    data = without_bom(file.read(), path)
    if data.lstrip().startswith(b"["):
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise InputError(bad_byte(error), path=path, line=line) from None
        yield from _elements(text, path)
    else:
        yield from json_lines(io.BytesIO(data), path)


def _elements(text: str, path: Path) -> Iterator[Record]:
    """Yield the elements of an array one by one, so that each has its line and the whole is never held twice."""
    start = _skip_blank(text, text.index("[") + 1)
    line = text.count("\n", 0, start) + 1
    number = 0
    closed = text.startswith("]", start)
    while not closed:
        number += 1
        try:
            value, end = DECODER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            raise InputError(f"element {number}: {malformed(error)}", path=path, line=error.lineno) from None
        except (ValueError, RecursionError) as error:
            cause = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise InputError(f"invalid JSON: {cause} (element {number})", path=path, line=line) from None
        yield Record(line, number, value, prefix=f"element {number}: ")
        comma = _skip_blank(text, end)
        closed = text.startswith("]", comma)
        if not closed and not text.startswith(",", comma):
            line += text.count("\n", start, comma)
            cause = "the array is cut off" if comma == len(text) else "a comma or ] expected"
            raise InputError(f"invalid JSON: {cause} after element {number}", path=path, line=line)
        following = _skip_blank(text, comma + 1)
        line += text.count("\n", start, following)
        start = following
    rest = _skip_blank(text, start if number else start + 1)
    if rest != len(text):
        line = text.count("\n", 0, rest) + 1
        raise InputError("invalid JSON: text after the end of the array", path=path, line=line)


def _skip_blank(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    return position if match is None else match.end()
