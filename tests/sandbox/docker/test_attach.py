"""The attached stream gives stdout alone, whatever the chunks, over plain and over encrypted sockets."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.sandbox.docker.attach import STDERR, STDOUT, AttachedStream, Demultiplexer, MalformedStream, plain_socket

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


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_taken_apart_or_refused_and_nothing_is_kept(data: bytes) -> None:
    demultiplexer = Demultiplexer()
    try:
        total = sum(len(payload) for _, payload in demultiplexer.feed(data))
    except MalformedStream:
        return
    assert total <= len(data)


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


async def test_an_encrypted_connection_is_relayed_both_ways(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs the command openssl for a certificate")
    remote, client = _encrypted_pair(_certificate(tmp_path))
    client._response = SimpleNamespace(close=lambda: None)  # type: ignore[attr-defined]
    stream = await AttachedStream.open(plain_socket(client))
    blob = bytes(range(256)) * 2000

    def serve() -> bytes:
        received = b""
        while len(received) < len(blob):
            received += remote.recv(1 << 16)
        remote.sendall(framed(STDOUT, received))
        return received

    serving = asyncio.create_task(asyncio.to_thread(serve))
    stream.writer.write(blob)
    await stream.writer.drain()
    assert await stream.reader.readexactly(len(blob)) == blob
    assert await serving == blob
    stream.close()
    assert await asyncio.to_thread(remote.recv, 1) == b""
    remote.close()


def _certificate(folder: Path) -> Path:
    file = folder / "server.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", file, "-out", folder / "cert.pem"], check=True, capture_output=True)
    with file.open("a") as pem:
        pem.write((folder / "cert.pem").read_text())
    return file


def _encrypted_pair(certificate: Path) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    """Return a server's and a client's end; the handshake needs both at once."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    client = ssl.create_default_context(cafile=str(certificate))
    left, right = socket.socketpair()
    remote = server.wrap_socket(left, server_side=True, do_handshake_on_connect=False)
    local = client.wrap_socket(right, server_hostname="localhost", do_handshake_on_connect=False)
    handshake = Thread(target=remote.do_handshake)
    handshake.start()
    local.do_handshake()
    handshake.join()
    return remote, local
