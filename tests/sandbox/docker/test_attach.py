"""The attached stream separates stdout from stderr, wherever the received chunks end."""

from __future__ import annotations

import asyncio
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.sandbox.docker.attach import STDERR, STDOUT, AttachedStream, Demultiplexer, MalformedStream

FRAMES = st.lists(st.tuples(st.sampled_from([STDOUT, STDERR]), st.binary(max_size=300)), max_size=20)


def make_frame(stream: int, payload: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(payload).to_bytes(4, "big") + payload


@given(FRAMES, st.lists(st.integers(1, 40), max_size=50))
def test_frames_survive_any_chunk_boundaries(frames: list[tuple[int, bytes]], sizes: list[int]) -> None:
    data = b"".join(make_frame(*frame) for frame in frames)
    demultiplexer, outputs = Demultiplexer(), {STDOUT: b"", STDERR: b""}
    order: list[int] = []
    for size in [*sizes, len(data)]:
        chunk, data = data[:size], data[size:]
        for stream, payload in demultiplexer.feed(chunk):
            outputs[stream] += payload
            order += [stream] * len(payload)
    for stream in (STDOUT, STDERR):
        assert outputs[stream] == b"".join(payload for number, payload in frames if number == stream)
    assert order == [stream for stream, payload in frames for _ in payload]


@pytest.mark.parametrize("header", [b"\x03\0\0\0\0\0\0\1", b"\1\1\0\0\0\0\0\1", b"HTTP/1.1"])
def test_invalid_headers_are_rejected(header: bytes) -> None:
    with pytest.raises(MalformedStream):
        list(Demultiplexer().feed(header))


async def test_stdout_is_read_stdin_is_raw_and_the_end_of_stderr_is_available() -> None:
    ours, theirs = socket.socketpair()
    stream = await AttachedStream.open(ours)
    with theirs:
        theirs.sendall(make_frame(STDERR, b"x" * 5000 + b" end\n") + make_frame(STDOUT, b"hello"))
        assert await stream.reader.readexactly(5) == b"hello"
        assert stream.stderr.endswith("xx end")
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
        theirs.sendall(b"not a valid frame")
        with pytest.raises(MalformedStream):
            await stream.reader.read(1)
    stream.close()
