"""Records are put away compressed and found again; as many pieces as fit are taken, the dearest first."""

from __future__ import annotations

import base64
import io
import json
import zlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from agent.views.archive import Piece, Shelf, Spool, fitting


def spool(held: bytes = b"") -> Spool:
    """Return a spool in memory."""
    return Spool(io.BytesIO(held), Path("page.html"))


@given(st.lists(st.text(), max_size=40), st.integers(1, 9), st.integers(1, 200))
def test_every_record_is_at_its_place(texts: list[str], records: int, piece_bytes: int) -> None:
    shelf = Shelf("kind", spool(b"of another"), records=records, piece_bytes=piece_bytes)
    places = [shelf.add(json.dumps(text).encode()) for text in texts]
    shelf.flush()
    shelf.flush()
    pieces = [json.loads(zlib.decompress(base64.b64decode(packed))) for _, packed in shelf.encoded(len(shelf.pieces))]
    assert [pieces[piece][place] for piece, place in places] == texts
    assert [piece.records for piece in shelf.pieces] == [len(piece) for piece in pieces]
    assert all(len(piece) <= records for piece in pieces)


def test_shelves_share_a_spool() -> None:
    own = spool()
    shelves = [Shelf(name, own, records=2) for name in "ab"]
    for number in range(5):
        shelves[number % 2].add(str(number).encode())
    for shelf in shelves:
        shelf.flush()
    found = [[json.loads(zlib.decompress(base64.b64decode(text))) for _, text in shelf.encoded(9)] for shelf in shelves]
    assert found == [[[0, 2], [4]], [[1, 3]]]


@given(st.lists(st.lists(st.integers(1, 5000), max_size=5), max_size=4), st.integers(-10, 30_000))
def test_what_is_taken_fits_and_the_next_piece_would_not(sizes: list[list[int]], room: int) -> None:
    shelves = []
    for number, pieces in enumerate(sizes):
        shelf = Shelf(str(number), spool(), records=1)
        shelf.pieces = [Piece(0, size, 1) for size in pieces]
        shelves.append(shelf)
    counts = fitting(shelves, room)
    every = [piece.page_bytes for shelf in shelves for piece in shelf.pieces]
    taken = sum(counts.values())
    assert sum(every[:taken]) <= max(room, 0)
    assert taken == len(every) or sum(every[: taken + 1]) > room
    flat = [shelf.name for shelf in shelves for _ in shelf.pieces][:taken]
    assert {name: flat.count(name) for name in counts} == counts
