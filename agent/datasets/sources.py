"""The records of a file, each with its line: JSON lines (also gzipped) and JSON arrays; and how files are opened."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from agent.datasets.encoding import DECODER, bad_byte, loads
from agent.errors import InputError

_SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
_BUFFER = 1 << 18
# Also of compressed files, of which a few bytes can be unpacked into any number of them.
LONGEST_LINE = 256 << 20
_BOM = b"\xef\xbb\xbf"
_BLANK = re.compile(r"[ \t\r\n]*")
_NO_FILE = "it is a pipe, a socket or a device"


@dataclass(frozen=True)
class BadLine:
    """A line that gives no pair, and why."""

    line: int
    cause: str


@dataclass(frozen=True)
class Record:
    """One JSON value of a file.

    `number` counts lines in JSON lines, elements in an array, from 1; `prefix` names the element in messages.
    """

    line: int
    number: int
    value: Any
    prefix: str = ""


def records(path: Path, *, regular: bool = False) -> Iterator[Record | BadLine]:
    """Yield the records of a file in order; a line that is not JSON as a `BadLine`.

    With `regular`, what is no ordinary file is refused rather than waited for.

    Raises:
        InputError: the file as a whole cannot be read.
    """
    name = path.name.lower()
    if "\0" in str(path):
        raise InputError("a path cannot hold NUL", path=repr(str(path)))
    with _opened(path, regular) as file:
        if not name.endswith(_SUFFIXES):
            wanted = ", ".join(_SUFFIXES)
            cause = f"the name ends in none of {wanted}; convert it to one JSON object per line"
            raise InputError(cause, path=path)
        if name.removesuffix(".gz").endswith(".json"):
            yield from _array_or_lines(file, path)
        else:
            yield from _lines(file, path)


@contextmanager
def _opened(path: Path, regular: bool) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes, and turn the system's error codes into words."""
    try:
        compressed = path.name.lower().endswith(".gz")
        with open_regular(path) if regular else path.open("rb") as raw:
            # A GzipFile reads line by line in Python; behind a buffer it is four times as fast.
            yield io.BufferedReader(gzip.GzipFile(fileobj=raw), _BUFFER) if compressed else raw
    except FileNotFoundError:
        raise InputError("no such file", path=path) from None
    except IsADirectoryError:
        raise InputError("is a folder; give the file of pairs in it", path=path) from None
    except PermissionError:
        raise InputError("may not be read by this user (permissions)", path=path) from None
    except gzip.BadGzipFile as error:
        raise InputError(f"is not a gzip file, or a damaged one ({error})", path=path) from None
    except (EOFError, zlib.error) as error:
        raise InputError(f"the compressed file is cut off or damaged ({error}); fetch it again", path=path) from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path=path) from None


def _lines(file: IO[bytes], path: Path) -> Iterator[Record | BadLine]:
    for number, raw in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), start=1):
        if len(raw) > LONGEST_LINE:
            raise InputError(f"the line is longer than {LONGEST_LINE >> 20} MB", path=path, line=number)
        line = _without_bom(raw, path) if number == 1 else raw
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


def _without_bom(start: bytes, path: Path) -> bytes:
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError("is UTF-16; convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)", path=path)
    if start.startswith(b"\x1f\x8b"):
        raise InputError(f"is gzip-compressed; name it {path.name}.gz", path=path)
    return start.removeprefix(_BOM)


def _array_or_lines(file: IO[bytes], path: Path) -> Iterator[Record | BadLine]:
    data = _without_bom(file.read(), path)
    if data.lstrip().startswith(b"["):
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise InputError(bad_byte(error), path=path, line=line) from None
        yield from _elements(text, path)
    else:
        # Many datasets call their files of JSON lines `.json`.
        yield from _lines(io.BytesIO(data), path)


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
            cause = f"invalid JSON: {error.msg} (column {error.colno}, element {number})"
            raise InputError(cause, path=path, line=error.lineno) from None
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


def open_regular(path: Path) -> IO[bytes]:
    """Open an ordinary file, or a link to one, for reading bytes; a pipe of a stranger's would be waited for for ever.

    Raises:
        OSError: it cannot be opened, or is something else.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise (OSError(error.errno, _NO_FILE) if error.errno == errno.ENXIO else error) from None
    try:
        check_regular(descriptor)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def check_regular(descriptor: int) -> None:
    """Refuse what is no ordinary file.

    Raises:
        OSError: it is something else.
    """
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, _NO_FILE)
