"""Records are put away compressed and found again; as many pieces as fit are taken, the dearest first."""

from __future__ import annotations

import base64
import json
import zlib

from hypothesis import given
from hypothesis import strategies as st

from agent.views.archive import Shelf, fitting, page_bytes


@given(st.lists(st.text(), max_size=40), st.integers(1, 9), st.integers(1, 200))
def test_every_record_is_at_its_place(texts: list[str], records: int, piece_bytes: int) -> None:
    shelf = Shelf("kind", records=records, piece_bytes=piece_bytes)
    places = [shelf.add(json.dumps(text).encode()) for text in texts]
    shelf.flush()
    shelf.flush()
    pieces = [json.loads(zlib.decompress(base64.b64decode(packed))) for _, packed in shelf.encoded(len(shelf.pieces))]
    assert [pieces[piece][place] for piece, place in places] == texts
    assert [records for _, records in shelf.pieces] == [len(piece) for piece in pieces]
    assert all(len(piece) <= records for piece in pieces)


@given(st.lists(st.lists(st.integers(1, 5000), max_size=5), max_size=4), st.integers(-10, 30_000))
def test_what_is_taken_fits_and_the_next_piece_would_not(sizes: list[list[int]], room: int) -> None:
    shelves = []
    for number, pieces in enumerate(sizes):
        shelf = Shelf(str(number), records=1)
        shelf.pieces = [(b"x" * size, 1) for size in pieces]
        shelves.append(shelf)
    counts = fitting(shelves, room)
    every = [page_bytes(packed) for shelf in shelves for packed, _ in shelf.pieces]
    taken = sum(counts.values())
    assert sum(every[:taken]) <= max(room, 0)
    assert taken == len(every) or sum(every[: taken + 1]) > room
    flat = [shelf.name for shelf in shelves for _ in shelf.pieces][:taken]
    assert {name: flat.count(name) for name in counts} == counts
