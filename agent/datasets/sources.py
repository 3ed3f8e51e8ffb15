"""How files of pairs are opened and read line by line, and what is got from them: records, each with its place."""

from __future__ import annotations

import errno
import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from agent.errors import InputError

STDIN = Path("-")
_BUFFER = 1 << 18
# Also of compressed files, of which a few bytes can be unpacked into any number of them.
LONGEST_LINE = 256 << 20
_BOM = b"\xef\xbb\xbf"
_NO_FILE = "it is a pipe, a socket or a device"


@dataclass(frozen=True)
class BadLine:
    """A line (of Parquet and folders: a row) that gives no pair, and why; `prefix` names element or row."""

    line: int
    cause: str
    path: Path | None = None
    prefix: str = ""

    def __str__(self) -> str:
        place = f"line {self.line}" if self.path is None else f"{shown(self.path)}:{self.line}"
        return f"{place}: {self.prefix}{self.cause}"


@dataclass(frozen=True)
class SourceRow:
    """One object of a file.

    `line` is where it begins, of Parquet and folders its row. `number` counts lines in JSON lines, elements in an
    array, rows in a table, from 1; `prefix` names element or row in messages.
    """

    line: int
    number: int
    value: Any
    prefix: str = ""


def shown(path: Path) -> str:
    """Return how messages name a file."""
    return "standard input" if path == STDIN else str(path)


@contextmanager
def in_words(path: Path) -> Iterator[None]:
    """Turn what the system says of a file into words.

    Raises:
        InputError: it could not be opened or read.
    """
    try:
        yield
    except FileNotFoundError:
        raise InputError("no such file", path=path) from None
    except IsADirectoryError:
        raise InputError("is a folder; give the files of pairs in it, as in '*.jsonl'", path=path) from None
    except PermissionError:
        raise InputError("may not be read by this user (permissions)", path=path) from None
    except gzip.BadGzipFile as error:
        raise InputError(f"is not a gzip file, or a damaged one ({error})", path=path) from None
    except (EOFError, zlib.error) as error:
        raise InputError(f"the compressed file is cut off or damaged ({error}); fetch it again", path=path) from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path=shown(path)) from None


@contextmanager
def opened(path: Path, *, regular: bool = False) -> Iterator[IO[bytes]]:
    """Open a file, unpacked where it is `.gz`, for reading bytes; `-` is standard input.

    With `regular`, what is no ordinary file is refused rather than waited for.

    Raises:
        InputError: it cannot be opened or, until it is closed, read.
    """
    with in_words(path):
        if path == STDIN:
            yield sys.stdin.buffer
            return
        compressed = path.name.lower().endswith(".gz")
        with open_regular(path) if regular else path.open("rb") as raw:
            # A GzipFile reads line by line in Python; behind a buffer it is four times as fast.
            yield io.BufferedReader(gzip.GzipFile(fileobj=raw), _BUFFER) if compressed else raw


def raw_lines(file: IO[bytes], path: Path) -> Iterator[bytes]:
    """Yield the lines of a file with their ends, without the mark at the file's beginning (BOM).

    Raises:
        InputError: a line is too long, or the file is UTF-16 or compressed.
    """
    for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), start=1):
        if len(line) > LONGEST_LINE:
            raise InputError(f"the line is longer than {LONGEST_LINE >> 20} MB", path=shown(path), line=number)
        yield without_bom(line, path) if number == 1 else line


def without_bom(start: bytes, path: Path) -> bytes:
    """Return the beginning of a file without its mark.

    Raises:
        InputError: by its first bytes it is UTF-16 or compressed.
    """
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError("is UTF-16; convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)", path=shown(path))
    if start.startswith(b"\x1f\x8b"):
        remedy = "unpack it first (gunzip -c)" if path == STDIN else f"name it {path.name}.gz"
        raise InputError(f"is gzip-compressed; {remedy}", path=shown(path))
    return start.removeprefix(_BOM)


def open_regular(path: Path) -> IO[bytes]:
    """Open an ordinary file, or a link to one, for reading bytes. A stranger's pipe would block forever.

    Raises:
        OSError: it cannot be opened, or is something else.
    """
    try:
        return os.fdopen(check_regular(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)), "rb")
    except OSError as error:
        raise (OSError(error.errno, _NO_FILE) if error.errno == errno.ENXIO else error) from None


def check_regular(descriptor: int) -> int:
    """Return the descriptor of an ordinary file; close that of anything else.

    Raises:
        OSError: it is something else.
    """
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, _NO_FILE)
