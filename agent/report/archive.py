"""What the page carries along for later: records in compressed pieces, as many as a size allows.

A piece is a JSON array of records, deflated (zlib) and in base64, so that a browser inflates one when it is looked at.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

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


class Shelf:
    """Takes in records one by one; they go to `spool` compressed, so that memory holds no more than a piece.

    A piece ends with `records` records, or earlier when they are large.
    """

    def __init__(self, name: str, spool: IO[bytes], *, records: int, piece_bytes: int = _PIECE_BYTES) -> None:
        self.name = name
        self.pieces: list[Piece] = []
        self._spool = spool
        self._records = records
        self._piece_bytes = piece_bytes
        self._open: list[bytes] = []

    def add(self, record: bytes) -> tuple[int, int]:
        """Take in one record in JSON; return the numbers of its piece and of its place therein."""
        place = (len(self.pieces), len(self._open))
        self._open.append(record)
        if len(self._open) >= self._records or sum(map(len, self._open)) >= self._piece_bytes:
            self.flush()
        return place

    def flush(self) -> None:
        """End the piece."""
        if not self._open:
            return
        packed = zlib.compress(b"[" + b",".join(self._open) + b"]", 9)
        offset = self._spool.seek(0, 2)
        self._spool.write(packed)
        self.pieces.append(Piece(offset, len(packed), len(self._open)))
        self._open = []

    def encoded(self, count: int) -> Iterator[tuple[str, str]]:
        """Yield the first `count` pieces, each with its name in the page."""
        for number, piece in enumerate(self.pieces[:count]):
            self._spool.seek(piece.offset)
            yield f"{self.name}-{number}", base64.b64encode(self._spool.read(piece.size)).decode("ascii")


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
