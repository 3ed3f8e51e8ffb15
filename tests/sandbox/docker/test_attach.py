"""The attached stream gives stdout alone, whatever the chunks, over plain and over encrypted sockets."""

from __future__ import annotations

import asyncio
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.sandbox.docker.attach import STDERR, STDOUT, AttachedStream, Demultiplexer, MalformedStream

FRAMES = st.lists(st.tuples(st.sampled_from([STDOUT, STDERR]), st.binary(max_size=300)), max_size=20)


def framed(stream: int, payload: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(payload).to_bytes(4, "big") + payload


@given(FRAMES, st.lists(st.integers(1, 40), max_size=50))
def test_frames_come_out_as_they_went_in_whatever_the_chunks(frames: list[tuple[int, bytes]], sizes: list[int]) -> None:
    data = b"".join(framed(*frame) for frame in frames)
    demultiplexer, got = Demultiplexer(), {STDOUT: b"", STDERR: b""}
    order: list[int] = []
    for size in [*sizes, len(data)]:
        chunk, data = data[:size], data[size:]
        for stream, payload in demultiplexer.feed(chunk):
            got[stream] += payload
            order += [stream] * len(payload)
    for stream in (STDOUT, STDERR):
        assert got[stream] == b"".join(payload for each, payload in frames if each == stream)
    assert order == [stream for stream, payload in frames for _ in payload]


@pytest.mark.parametrize("header", [b"\x03\0\0\0\0\0\0\1", b"\1\1\0\0\0\0\0\1", b"HTTP/1.1"])
def test_what_is_no_header_is_refused(header: bytes) -> None:
    with pytest.raises(MalformedStream):
        list(Demultiplexer().feed(header))


async def test_stdout_is_read_stdin_is_raw_and_the_end_of_stderr_is_kept() -> None:
    ours, theirs = socket.socketpair()
    stream = await AttachedStream.open(ours)
    with theirs:
        theirs.sendall(framed(STDERR, b"x" * 5000 + b" last words\n") + framed(STDOUT, b"hello"))
        assert await stream.reader.readexactly(5) == b"hello"
        assert stream.stderr.endswith("xx last words")
        assert len(stream.stderr) < 5000
        stream.writer.write(b"request")
        await stream.writer.drain()
        assert theirs.recv(100) == b"request"
        stream.close()
        assert await asyncio.to_thread(theirs.recv, 1) == b""


async def test_a_malformed_stream_breaks_the_reader() -> None:
    ours, theirs = socket.socketpair()
    stream = await AttachedStream.open(ours)
    with theirs:
        theirs.sendall(b"no frame at all")
        with pytest.raises(MalformedStream):
            await stream.reader.read(1)
    stream.close()
