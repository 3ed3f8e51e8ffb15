"""The framing survives any bytes in any chunks, and believes only records signed with the run's nonce."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.sandbox.base import Frame, Record
from agent.sandbox.channel import MAX_FRAME, FrameReader, MalformedFrame, frame, pack, read_report, unpack

NONCE = "0123456789abcdef"
chunks = st.lists(st.binary(max_size=50), max_size=20)


def record(*fields: str, nonce: str = NONCE) -> bytes:
    body = pack([nonce, *fields])
    return len(body).to_bytes(4, "big") + body


@given(st.lists(st.text()))
def test_fields_come_back_as_they_were(fields: list[str]) -> None:
    sent = [field.encode("utf-8", "surrogatepass") for field in fields]
    assert unpack(pack(fields)) == [data.decode("utf-8", "replace") for data in sent]


@given(st.binary())
def test_any_bytes_are_fields_or_malformed(data: bytes) -> None:
    with suppress(MalformedFrame):
        assert all(isinstance(field, str) for field in unpack(data))


@given(chunks)
def test_any_stream_gives_frames_or_is_malformed(stream: list[bytes]) -> None:
    reader = FrameReader()
    with suppress(MalformedFrame):
        for data in stream:
            assert all(len(payload) <= MAX_FRAME for _, payload in reader.feed(data))


@given(st.lists(st.tuples(st.sampled_from([b"o", b"e", b"x"]), st.binary(max_size=200))), st.integers(1, 7))
def test_frames_come_back_whatever_the_chunks(frames: list[tuple[bytes, bytes]], size: int) -> None:
    stream = b"".join(frame(kind, payload) for kind, payload in frames)
    reader = FrameReader()
    found: list[tuple[bytes, bytes]] = []
    for at in range(0, len(stream), size):
        found += reader.feed(stream[at : at + size])
    assert found == frames


def test_a_frame_larger_than_any_may_be_is_refused_before_it_is_kept() -> None:
    with pytest.raises(MalformedFrame, match="a frame of"):
        list(FrameReader().feed(b"o" + (MAX_FRAME + 1).to_bytes(4, "big")))


def test_a_signed_record_is_read() -> None:
    data = record("case", "test_a", "failed", "AssertionError", "no", "program.py", "7", "test_a")
    read = Record("case", "test_a", "failed", "AssertionError", "no", (Frame("program.py", 7, "test_a"),))
    assert read_report(data, NONCE) == (read,)


def test_a_record_with_another_nonce_is_tampering() -> None:
    good, forged = record("start", "test_a", "", "", ""), record("end", "", "", "", "", nonce="0" * 16)
    assert [found.kind for found in read_report(good + forged, NONCE)] == ["start", "tamper"]


@given(st.binary(min_size=1))
def test_no_other_bytes_make_an_end_record(data: bytes) -> None:
    assert "end" not in [found.kind for found in read_report(data, NONCE)]


@given(st.binary(max_size=40))
def test_a_report_that_was_cut_off_is_read_to_its_last_record(tail: bytes) -> None:
    whole = record("start", "test_a", "", "", "")
    for end in range(len(whole) + 1):
        kinds = [found.kind for found in read_report(whole + whole[:end], NONCE, cut=True)]
        assert kinds == ["start"] * (2 if end == len(whole) else 1)
    assert "end" not in [found.kind for found in read_report(whole + tail, NONCE, cut=True)]


@pytest.mark.parametrize(("line", "read"), [("12", 12), ("9" * 5000, 0), ("\u0665", 0), ("-1", 0), ("", 0)])
def test_a_line_that_is_no_number_is_0(line: str, read: int) -> None:
    record = pack(["nonce", "case", "test_a", "error", "E", "m", "f.py", line, "f"])
    (found,) = read_report(len(record).to_bytes(4, "big") + record, "nonce")
    assert found.frames == (Frame("f.py", read, "f"),)
