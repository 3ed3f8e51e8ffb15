"""What the page carries along for later: records in compressed pieces, as many as a size allows.

A piece is a JSON array of records, deflated (zlib) and in base64, so that a browser inflates one when it is looked at.
"""

from __future__ import annotations

import base64
import errno
import os
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from agent.store.files import writing

_PIECE_BYTES = 200_000
_TAG_BYTES = 80


@dataclass(frozen=True)
class Piece:
    """Where a piece lies in the spool, how many records it holds, and the characters it takes in the page."""

    offset: int
    size: int
    records: int

    @property
    def page_bytes(self) -> int:
        """Return its size in the page, its tag included."""
        return (self.size + 2) // 3 * 4 + _TAG_BYTES


class Spool:
    """Keeps pieces on the disk until the page is written. `path` is what is told of when that is not possible."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file = file
        self._path = path

    def put(self, packed: bytes) -> int:
        """Add a piece; return where it lies.

        Raises:
            StorageError: it cannot be written.
        """
        with writing(self._path):
            offset = self._file.seek(0, os.SEEK_END)
            self._file.write(packed)
            self._file.flush()
        return offset

    def get(self, piece: Piece) -> bytes:
        """Return a piece."""
        self._file.seek(piece.offset)
        return self._file.read(piece.size)


@contextmanager
def spool_beside(path: Path) -> Iterator[Spool]:
    """Give a spool on the disk of `path`, which shows that `path` can be written; with the context it is gone.

    Raises:
        StorageError: it cannot.
    """
    with writing(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        file = tempfile.TemporaryFile(dir=path.parent)  # noqa: SIM115
    try:
        yield Spool(file, path)
    finally:
        # what could not be written is tried once more
        with suppress(OSError):
            file.close()


class Shelf:
    """Takes in records one by one; they go to `spool` compressed, so that memory holds no more than a piece.

    A piece ends with `records` records, or earlier when they are large.
    """

    def __init__(self, name: str, spool: Spool, *, records: int, piece_bytes: int = _PIECE_BYTES) -> None:
        self.name = name
        self.pieces: list[Piece] = []
        self.page_bytes = 0
        self._spool = spool
        self._records = records
        self._piece_bytes = piece_bytes
        self._open: list[bytes] = []
        self._open_bytes = 0

    def add(self, record: bytes) -> tuple[int, int]:
        """Take in one record in JSON; return the numbers of its piece and of its place therein."""
        place = (len(self.pieces), len(self._open))
        self._open.append(record)
        self._open_bytes += len(record)
        if len(self._open) >= self._records or self._open_bytes >= self._piece_bytes:
            self.flush()
        return place

    def flush(self) -> None:
        """End the piece."""
        if not self._open:
            return
        packed = zlib.compress(b"[" + b",".join(self._open) + b"]", 9)
        piece = Piece(self._spool.put(packed), len(packed), len(self._open))
        self.pieces.append(piece)
        self.page_bytes += piece.page_bytes
        self._open, self._open_bytes = [], 0

    def encoded(self, count: int) -> Iterator[tuple[str, str]]:
        """Yield the first `count` pieces, each with its name in the page."""
        for number, piece in enumerate(self.pieces[:count]):
            yield f"{self.name}-{number}", base64.b64encode(self._spool.get(piece)).decode("ascii")


def is_full(shelf: Shelf, shelves: Sequence[Shelf], page_bytes: int) -> bool:
    """Tell whether what the shelf takes in from now on cannot fit, those before it in the list being served first."""
    return sum(each.page_bytes for each in shelves[: shelves.index(shelf) + 1]) > page_bytes


def fitting(shelves: list[Shelf], page_bytes: int) -> dict[str, int]:
    """Return how many pieces of each shelf fit into so many bytes; what comes first in the list is served first."""
    counts = dict.fromkeys((shelf.name for shelf in shelves), 0)
    for shelf in shelves:
        for piece in shelf.pieces:
            page_bytes -= piece.page_bytes
            if page_bytes < 0:
                return counts
            counts[shelf.name] += 1
    return counts
