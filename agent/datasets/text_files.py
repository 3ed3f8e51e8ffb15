"""Read JSON lines, JSON arrays, CSV and TSV. Quoted cells may contain line breaks."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import IO

from agent.datasets.encoding import DECODER, describe_json_error, loads
from agent.datasets.sources import LONGEST_LINE, BadLine, SourceRow, display_name, read_all, read_lines
from agent.errors import InputError
from agent.text import plural

_BLANK = re.compile(r"[ \t\r\n]*")
_NO_UTF8 = re.compile("[\ud800-\udfff]")
_CAUSES = {
    "unexpected end of data": "a quoted cell has no closing quote",
    "new-line character": "a carriage return is outside quotes; end lines with \\n or \\r\\n",
    "field larger than": f"a cell is longer than {LONGEST_LINE >> 20} MB",
    "expected after": 'text follows the closing quote of a cell; write a quote inside a quoted cell as two quotes ("")',
}


def read_json_lines(file: IO[bytes], path: Path) -> Iterator[SourceRow | BadLine]:
    """Iterate over the records of JSON lines, skipping blank lines.

    Raises:
        InputError: see `read_lines`.
    """
    for number, line in enumerate(read_lines(file, path), start=1):
        if not line.strip():
            continue
        try:
            value = loads(line)
        except ValueError as error:
            yield BadLine(number, str(error))
            continue
        if isinstance(value, list):
            yield BadLine(
                number,
                "expected one object per line, not a list. If the file contains a single array, rename it to .json",
            )
        else:
            yield SourceRow(number, number, value)


def read_json_array(file: IO[bytes], path: Path) -> Iterator[SourceRow | BadLine]:
    """Iterate over the elements of a JSON array, or over JSON lines.

    Many datasets store JSON lines in `.json` files.

    Raises:
        InputError: the array is malformed.
    """
    data = read_all(file, path)
    if not data.lstrip().startswith(b"["):
        yield from read_json_lines(io.BytesIO(data), path)
        return
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(describe_json_error(error), path=path, line=data.count(b"\n", 0, error.start) + 1) from None
    yield from _iterate_elements(text, path)


def _iterate_elements(text: str, path: Path) -> Iterator[SourceRow]:
    """Iterate over the elements of an array and their line numbers, without copying the array."""
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
            raise InputError(f"element {number}: {describe_json_error(error)}", path=path, line=line) from None
        yield SourceRow(line, number, value, prefix=f"element {number}: ")
        delimiter = _skip_blank(text, end)
        line += text.count("\n", start, delimiter)
        if not text.startswith((",", "]"), delimiter):
            cause = "the array is truncated" if delimiter == len(text) else "expected a comma or ]"
            raise InputError(f"invalid JSON: {cause} after element {number}", path=path, line=line)
    rest = _skip_blank(text, delimiter + 1)
    if rest != len(text):
        line += text.count("\n", delimiter, rest)
        raise InputError("invalid JSON: unexpected text after the end of the array", path=path, line=line)


def _skip_blank(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    return position if match is None else match.end()


def read_table(file: IO[bytes], path: Path, delimiter: str | None = None) -> Iterator[SourceRow | BadLine]:
    """Iterate over the rows below the header. Each row maps column names to text or, for empty cells, None.

    Empty rows and columns without a name are skipped. By default, `delimiter` is the comma, semicolon or tab, whichever
    is most frequent in the header.

    Raises:
        InputError: the header has a duplicate column, or mismatched quotes make rows ambiguous.
    """
    # The limit applies to the whole process, so never lower it.
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))
    sizes = [0]  # of the lines of the current row
    lines = (line.decode("utf-8", "surrogateescape") for line in _limit_rows(read_lines(file, path), sizes, path))
    first = next(lines, "")
    reader = csv.reader(chain([first], lines), delimiter=delimiter or max(",;\t", key=first.count), strict=True)
    names: list[str] | None = None
    number, next_line = 0, 1
    try:
        for row in reader:
            line, next_line, sizes[0] = next_line, reader.line_num + 1, 0
            if not any(row):
                continue
            if names is None:
                names = _parse_header(row, path, line)
                continue
            number += 1
            prefix = f"row {number}: "
            try:
                yield SourceRow(line, number, _parse_cells(names, row), prefix)
            except ValueError as error:
                yield BadLine(line, str(error), prefix=prefix)
    except csv.Error as error:
        cause = next((words for part, words in _CAUSES.items() if part in str(error)), str(error))
        raise InputError(f"row {number + 1}: {cause}", path=display_name(path), line=next_line) from None


def _limit_rows(lines: Iterator[bytes], sizes: list[int], path: Path) -> Iterator[bytes]:
    """Iterate over lines. The caller sets `sizes[0]` to 0 after each row, because a row may have several lines."""
    for line in lines:
        sizes[0] += len(line)
        if sizes[0] > LONGEST_LINE:
            raise InputError(f"a row is longer than {LONGEST_LINE >> 20} MB", path=display_name(path))
        yield line


def _parse_header(row: Sequence[str], path: Path, line: int) -> list[str]:
    names = [name.strip() for name in row]
    if (bad := _NO_UTF8.search("".join(names))) is not None:
        raise InputError(
            f"the header is not UTF-8 ({_describe_byte(bad[0])}). Convert the file to UTF-8", path=path, line=line
        )
    columns = [name for name in names if name]
    if duplicate := next((name for name in columns if columns.count(name) > 1), None):
        raise InputError(
            f"the header has two columns named {duplicate!r}. Rename one", path=display_name(path), line=line
        )
    return names


def _parse_cells(names: Sequence[str], row: Sequence[str]) -> dict[str, str | None]:
    """Map a row's cells to columns.

    Raises:
        ValueError: the number of cells differs from the number of columns, or a cell is not UTF-8.
    """
    if len(row) != len(names):
        cells = f"{plural(len(row), 'cell')}, but the header has {plural(len(names), 'column')}"
        remedy = ". Quote cells that contain the delimiter" if len(row) > len(names) else ""
        raise ValueError(f"{cells}; the last cell is {row[-1][:30]!r}{remedy}")
    for position, cell in enumerate(row):
        if (bad := _NO_UTF8.search(cell)) is not None:
            column = f"column {position + 1} ({names[position]!r})"
            raise ValueError(f"{column}: {_describe_byte(bad[0])} is not UTF-8. Convert the file to UTF-8")
    return {name: cell or None for name, cell in zip(names, row, strict=True) if name}


def _describe_byte(surrogate: str) -> str:
    return f"byte 0x{ord(surrogate) - 0xDC00:02x}"
