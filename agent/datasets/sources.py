"""Open pairs files, read their lines, and represent records with their locations."""

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
# In bytes. The limit also protects against compressed files that expand without limit. Parsed JSON can need thirty
# times as much memory.
LONGEST_LINE = 16 << 20
_BOM = b"\xef\xbb\xbf"
_NOT_REGULAR = "it is a pipe, a socket or a device"


@dataclass(frozen=True)
class BadLine:
    """A line (or Parquet row) that is not a valid pair, with the cause.

    `prefix` names the array element or the row in messages.
    """

    line: int
    cause: str
    path: Path | None = None
    prefix: str = ""

    def __str__(self) -> str:
        place = f"line {self.line}" if self.path is None else f"{display_name(self.path)}:{self.line}"
        return f"{place}: {self.prefix}{self.cause}"


@dataclass(frozen=True)
class SourceRow:
    """One record in a file.

    `line` is the line on which the record starts, or the row number for Parquet files and folders. `number` counts
    lines, array elements or rows from 1. `prefix` names the array element or the row in messages.
    """

    line: int
    number: int
    value: Any
    prefix: str = ""


def display_name(path: Path) -> str:
    """Return a file's name for use in messages."""
    return "standard input" if path == STDIN else str(path)


@contextmanager
def translate_os_errors(path: Path) -> Iterator[None]:
    """Translate system errors about a file into `InputError`.

    Raises:
        InputError: the file could not be opened or read.
    """
    try:
        yield
    except FileNotFoundError:
        raise InputError("no such file", path=path) from None
    except IsADirectoryError:
        raise InputError("is a folder, but not a dataset. Pass files, such as '*.jsonl'", path=path) from None
    except PermissionError:
        raise InputError("cannot be read: permission denied", path=path) from None
    except gzip.BadGzipFile as error:
        raise InputError(f"is not a gzip file, or is damaged ({error})", path=path) from None
    except (EOFError, zlib.error) as error:
        raise InputError(
            f"the compressed file is truncated or damaged ({error}). Download it again", path=path
        ) from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path=display_name(path)) from None


@contextmanager
def open_source(path: Path, *, regular: bool = False) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes. A `.gz` file is decompressed. `-` means standard input.

    If `regular` is set, only regular files are accepted, because reading a pipe could block.

    Raises:
        InputError: the file cannot be opened, or cannot be read inside the context.
    """
    with translate_os_errors(path):
        if path == STDIN:
            yield sys.stdin.buffer
            return
        compressed = path.name.lower().endswith(".gz")
        with open_regular(path) if regular else path.open("rb") as raw:
            # GzipFile reads lines in Python code. With a buffer, reading is four times as fast.
            yield io.BufferedReader(gzip.GzipFile(fileobj=raw), _BUFFER) if compressed else raw


def read_lines(file: IO[bytes], path: Path) -> Iterator[bytes]:
    """Iterate over the lines of a file, including line endings but not a byte order mark (BOM).

    Raises:
        InputError: a line is too long, or the file is UTF-16 or compressed.
    """
    for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), start=1):
        if len(line) > LONGEST_LINE:
            raise InputError(f"the line is longer than {LONGEST_LINE >> 20} MB", path=display_name(path), line=number)
        yield strip_bom(line, path) if number == 1 else line


def read_all(file: IO[bytes], path: Path) -> bytes:
    """Return the content of a file without a byte order mark (BOM).

    Raises:
        InputError: the file is UTF-16, or is compressed and too large.
    """
    is_compressed = path.suffix.lower() == ".gz"
    data = file.read(LONGEST_LINE + 1 if is_compressed else -1)
    if is_compressed and len(data) > LONGEST_LINE:
        raise InputError(f"is larger than {LONGEST_LINE >> 20} MB. Decompress it first (gunzip)", path=path)
    return strip_bom(data, path)


def strip_bom(start: bytes, path: Path) -> bytes:
    """Remove a byte order mark (BOM) from the first bytes of a file.

    Raises:
        InputError: the file is UTF-16 or gzip.
    """
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError("is UTF-16. Convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)", path=display_name(path))
    if start.startswith(b"\x1f\x8b"):
        remedy = "Decompress it first (gunzip -c)" if path == STDIN else f"Rename it to {path.name}.gz"
        raise InputError(f"is gzip-compressed. {remedy}", path=display_name(path))
    return start.removeprefix(_BOM)


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file, or a link to one, for reading bytes. Rejects pipes, which could block forever.

    Raises:
        OSError: the file cannot be opened or is not a regular file.
    """
    try:
        return os.fdopen(check_regular(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)), "rb")
    except OSError as error:
        raise (OSError(error.errno, _NOT_REGULAR) if error.errno == errno.ENXIO else error) from None


def check_regular(descriptor: int) -> int:
    """Return `descriptor` if it refers to a regular file. Otherwise, close it and raise an error.

    Raises:
        OSError: the descriptor does not refer to a regular file.
    """
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, _NOT_REGULAR)
