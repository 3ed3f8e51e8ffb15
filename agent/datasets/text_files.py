"""The records of text files: JSON lines, JSON arrays, CSV and TSV, whose quoted cells may hold line breaks."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import IO

from agent.datasets.encoding import DECODER, json_problem, loads
from agent.datasets.sources import LONGEST_LINE, BadLine, SourceRow, raw_lines, shown, without_bom
from agent.errors import InputError
from agent.wording import plural

_BLANK = re.compile(r"[ \t\r\n]*")
_NO_UTF8 = re.compile("[\ud800-\udfff]")
_CAUSES = {
    "unexpected end of data": "a cell begins with a quote, and no quote ends it",
    "new-line character": "a carriage return stands alone outside of quotes; end lines with \\n or \\r\\n",
    "field larger than": f"a cell is longer than {LONGEST_LINE >> 20} MB",
    "expected after": 'text follows the quote that ends a cell; a quote inside a quoted cell is written twice ("")',
}


def json_lines(file: IO[bytes], path: Path) -> Iterator[SourceRow | BadLine]:
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
            yield SourceRow(number, number, value)


def json_array(file: IO[bytes], path: Path) -> Iterator[SourceRow | BadLine]:
    """Yield the elements of an array; or, as many datasets call their files of JSON lines `.json`, those of lines.

    Raises:
        InputError: the array is malformed.
    """
    data = without_bom(file.read(), path)
    if not data.lstrip().startswith(b"["):
        yield from json_lines(io.BytesIO(data), path)
        return
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(json_problem(error), path=path, line=data.count(b"\n", 0, error.start) + 1) from None
    yield from _elements(text, path)


def _elements(text: str, path: Path) -> Iterator[SourceRow]:
    """Yield the elements of an array one by one, so that each has its line and the whole is never held twice."""
    number, delimiter = 0, text.index("[")
    line = text.count("\n", 0, delimiter) + 1
    while number == 0 or text[delimiter] == ",":
        start = _skip_blank(text, delimiter + 1)
        line += text.count("\n", delimiter, start)
        if number == 0 and text.startswith("]", start):
            delimiter = start
            break
        number += 1
        try:
            value, end = DECODER.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            line = getattr(error, "lineno", line)
            raise InputError(f"element {number}: {json_problem(error)}", path=path, line=line) from None
        yield SourceRow(line, number, value, prefix=f"element {number}: ")
        delimiter = _skip_blank(text, end)
        line += text.count("\n", start, delimiter)
        if not text.startswith((",", "]"), delimiter):
            cause = "the array is cut off" if delimiter == len(text) else "a comma or ] expected"
            raise InputError(f"invalid JSON: {cause} after element {number}", path=path, line=line)
    rest = _skip_blank(text, delimiter + 1)
    if rest != len(text):
        line += text.count("\n", delimiter, rest)
        raise InputError("invalid JSON: text after the end of the array", path=path, line=line)


def _skip_blank(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    return position if match is None else match.end()


def table_rows(file: IO[bytes], path: Path, delimiter: str | None = None) -> Iterator[SourceRow | BadLine]:
    """Yield an object for each row under the header: text by column, None where a cell is empty.

    Rows of empty cells alone, and columns without name, are left out. Without `delimiter` it is the one of comma,
    semicolon and tab that the header has most of.

    Raises:
        InputError: the header names a column twice, or quotes are not as they must be, so that rows cannot be told
            apart.
    """
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))  # of the whole process: only ever made larger
    lines = (line.decode("utf-8", "surrogateescape") for line in raw_lines(file, path))
    first = next(lines, "")
    reader = csv.reader(chain([first], lines), delimiter=delimiter or max(",;\t", key=first.count), strict=True)
    names: list[str] | None = None
    number, begun = 0, 1
    try:
        for row in reader:
            line, begun = begun, reader.line_num + 1
            if not any(row):
                continue
            if names is None:
                names = _header(row, path, line)
                continue
            number += 1
            prefix = f"row {number}: "
            try:
                yield SourceRow(line, number, _cells(names, row), prefix)
            except ValueError as error:
                yield BadLine(line, str(error), prefix=prefix)
    except csv.Error as error:
        cause = next((words for part, words in _CAUSES.items() if part in str(error)), str(error))
        raise InputError(f"row {number + 1}: {cause}", path=shown(path), line=begun) from None


def _header(row: Sequence[str], path: Path, line: int) -> list[str]:
    names = [name.strip() for name in row]
    if (bad := _NO_UTF8.search("".join(names))) is not None:
        raise InputError(f"the header is not UTF-8 ({_byte(bad[0])}); convert the file to UTF-8", path=path, line=line)
    named = [name for name in names if name]
    if twice := next((name for name in named if named.count(name) > 1), None):
        raise InputError(f"the header names the column {twice!r} twice; rename one", path=shown(path), line=line)
    return names


def _cells(names: Sequence[str], row: Sequence[str]) -> dict[str, str | None]:
    """Return a row's cells by column.

    Raises:
        ValueError: it has more or fewer cells than the header, or one is not UTF-8.
    """
    if len(row) != len(names):
        cells = f"{plural(len(row), 'cell')}, where the header has {plural(len(names), 'column')}"
        remedy = "; put cells that hold the delimiter in quotes" if len(row) > len(names) else ""
        raise ValueError(f"{cells}; the last is {row[-1][:30]!r}{remedy}")
    for position, cell in enumerate(row):
        if (bad := _NO_UTF8.search(cell)) is not None:
            raise ValueError(
                f"column {position + 1} ({names[position]!r}): {_byte(bad[0])} is not UTF-8; convert the file to UTF-8"
            )
    return {name: cell or None for name, cell in zip(names, row, strict=True) if name}


def _byte(escaped: str) -> str:
    return f"byte 0x{ord(escaped) - 0xDC00:02x}"
