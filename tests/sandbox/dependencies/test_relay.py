"""What runs in a builder reaches the host over its standard streams alone, many connections at once, each whole."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.sandbox.inside import relay, source
from agent.sandbox.inside.relay import BrokenFrames, Mux, frame, job_bytes, read_frame

KINDS = st.sampled_from([relay.OPEN, relay.DATA, relay.EOF, relay.RESET, relay.CREDIT, relay.OUTPUT, relay.END])
FRAMES = st.tuples(KINDS, st.integers(0, 2**32 - 1), st.binary(max_size=300))


def ended_reader(data: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return reader


@given(st.lists(FRAMES, max_size=8))
async def test_frames_are_read_as_they_were_written(frames: list[tuple[int, int, bytes]]) -> None:
    reader = ended_reader(b"".join(frame(*each) for each in frames))
    assert [await read_frame(reader) for _ in frames] == frames
    with pytest.raises(asyncio.IncompleteReadError):
        await read_frame(reader)


@given(st.binary(max_size=400))
async def test_no_bytes_do_anything_but_end_the_conversation(data: bytes) -> None:
    async with connected(b"import sys; sys.stdin.read()") as process:

        async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        with suppress(BrokenFrames, asyncio.IncompleteReadError):
            await Mux(ended_reader(data), process.stdin, serve, lambda _text: None).run()


@asynccontextmanager
async def connected(code: bytes | str) -> AsyncIterator[Any]:
    """Run Python code in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-c", code), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    yield process
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


async def relayed(serve: relay.Serve, code: str, **job: Any) -> tuple[int, str]:
    """Have a relay run code in a process that finds the proxy in PIP_PROXY; return how it ended and what it printed."""
    printed: list[bytes] = []
    whole = {"command": ["-c", code], "environment": {}, "folders": [], "files": {}, **job}
    async with connected(source("relay")) as process, asyncio.timeout(60):
        process.stdin.write(job_bytes(whole))
        ended = json.loads(await Mux(process.stdout, process.stdin, serve, printed.append).run())
    return ended["exit_code"], b"".join(printed).decode()


CONNECT = """
import hashlib, os, socket, threading
proxy = ("127.0.0.1", int(os.environ["PIP_PROXY"].rpartition(":")[2]))
def connect():
    return socket.create_connection(proxy)
"""


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(1 << 16):
        writer.write(chunk)
        await writer.drain()
    writer.write(b"bye")
    writer.close()


async def test_many_connections_are_carried_at_once_each_whole() -> None:
    code = (
        CONNECT
        + """
def talk(number):
    data = bytes([number]) * 3_000_000
    with connect() as made:
        threading.Thread(target=lambda: (made.sendall(data), made.shutdown(socket.SHUT_WR))).start()
        back = b""
        while chunk := made.recv(1 << 16):
            back += chunk
    print(back == data + b"bye", flush=True)
threads = [threading.Thread(target=talk, args=[number]) for number in range(10)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
    )
    assert await relayed(echo, code) == (0, "True\n" * 10)


async def test_a_connection_nobody_reads_holds_up_no_other_and_takes_no_more_than_its_window() -> None:
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        if await reader.read(1) == b"e":
            return await echo(reader, writer)
        with suppress(ConnectionError):
            while True:
                writer.write(b"0" * 65536)
                await writer.drain()
                sent += 65536

    code = (
        CONNECT
        + """
import time
idle = connect()
idle.sendall(b"flood")
time.sleep(0.5)
with connect() as made:
    made.sendall(b"e" + b"hello")
    made.shutdown(socket.SHUT_WR)
    print(made.recv(5), made.recv(5))
"""
    )
    assert await relayed(serve, code) == (0, "b'hello' b'bye'\n")
    assert sent < 16 << 20


async def test_a_connection_that_one_side_drops_ends_on_the_other() -> None:
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    code = (
        CONNECT
        + """
with connect() as made:
    try:
        print(made.recv(5))
    except ConnectionError:
        print(b"")
"""
    )
    assert await relayed(serve, code) == (0, "b''\n")


async def test_the_job_says_files_environment_and_exit_code(tmp_path: Path) -> None:
    code = "import os, sys; print(os.environ['A'], open(sys.argv[1]).read()); sys.exit(3)"
    path = str(tmp_path / "new" / "file")
    job = {"environment": {"A": "b"}, "folders": [str(tmp_path / "new")], "files": {path: "content"}}
    assert await relayed(echo, code, command=["-c", code, path], **job) == (3, "b content\n")


@pytest.mark.parametrize(
    "room",
    [
        {"size": 100_000, "files": 1000, "memory": 1 << 30},
        {"size": 10 << 20, "files": 50, "memory": 1 << 30},
    ],
)
async def test_a_command_whose_folder_holds_too_much_is_ended(tmp_path: Path, room: dict[str, int]) -> None:
    code = (
        "import pathlib, sys, time\n"
        "for number in range(60): pathlib.Path(sys.argv[1], str(number)).write_bytes(bytes(5000))\n"
        "time.sleep(60)"
    )
    (folder := tmp_path / "folder").mkdir()
    job = {"command": ["-c", code, str(folder)], "room": {"folder": str(folder), **room}}
    assert await relayed(echo, code, **job) == (relay.OVERFULL, "")


async def test_a_relay_whose_host_has_gone_ends() -> None:
    code = "import time; print('here', flush=True); time.sleep(60)"
    async with connected(source("relay")) as process:
        job = {"command": ["-c", code], "environment": {}, "folders": [], "files": {}}
        process.stdin.write(job_bytes(job))
        assert (await read_frame(process.stdout))[2] == b"here\n"
        process.stdin.close()
        async with asyncio.timeout(10):
            assert await process.wait() == 1


@pytest.mark.parametrize(
    "frames",
    [
        frame(relay.OPEN, 1) * 2,
        frame(relay.OPEN, 1) + frame(relay.DATA, 1, b"0" * 32768) * 40,
        frame(relay.OPEN, 1) + frame(relay.CREDIT, 1, b"x"),
        frame(relay.OPEN, 1) + frame(relay.DATA, 1),
        frame(relay.OPEN, 1) + frame(relay.EOF, 1) * 2,
        frame(relay.OPEN, 1) + frame(relay.EOF, 1) + frame(relay.DATA, 1, b"x"),
        b"".join(frame(relay.OPEN, number) for number in range(65)),
        b"\xff" * 20,
        relay._HEADER.pack(relay.DATA, 1, 60000),
    ],
)
async def test_a_relay_that_breaks_the_protocol_is_not_listened_to_any_more(frames: bytes) -> None:
    async def wait(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with connected("import sys; sys.stdin.read()") as process:
        with pytest.raises(BrokenFrames):
            await Mux(ended_reader(frames), process.stdin, wait, lambda _text: None).run()


async def test_connections_that_end_at_once_do_not_pile_up_before_a_relay_that_reads_nothing() -> None:
    async def refuse(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    reader = asyncio.StreamReader()
    async with connected("import time; time.sleep(60)") as process:
        process.stdin.write(b"0" * (1 << 20))  # the pipe is full: no frame to the relay is taken any more
        mux = Mux(reader, process.stdin, refuse, lambda _text: None)
        talk = asyncio.ensure_future(mux.run())
        for number in range(600):
            reader.feed_data(frame(relay.OPEN, number) + frame(relay.DATA, number, b"x"))
            await asyncio.sleep(0.001)
        assert len(mux._tasks) <= 300
        with pytest.raises(BrokenFrames):
            await talk


async def test_an_empty_output_is_none() -> None:
    printed: list[bytes] = []
    async with connected("import sys; sys.stdin.read()") as process:
        frames = frame(relay.OUTPUT) * 3 + frame(relay.OUTPUT, 0, b"a") + frame(relay.END)
        await Mux(ended_reader(frames), process.stdin, echo, printed.append).run()
    assert printed == [b"a"]
