"""Runs inside a throwaway builder: runs a command whose only way out is a proxy on the host, reached over this stdin.

Standard library only; its source is sent along, and the host speaks the same `Mux`. The builder has no network but its
own loopback: each connection made to a port there is carried, in frames, over the standard streams. First comes the
job: its length (4 bytes), then a JSON object with `command` (words for the interpreter), `environment`, `folders` (to
be made), `files` (path: text, to be written) and perhaps `room` (`folder`; `size` and `files`, which is all that it may
hold). The last frame is a JSON object: `exit_code`.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OPEN, DATA, EOF, RESET, CREDIT, OUTPUT, END = range(1, 8)
WINDOW = 1 << 18
"""Bytes that may be under way on one connection before its other end has taken them."""

OVERFULL = -255
"""The exit code of a command that was ended because its folder held too much."""

_LOOK_SECONDS = 0.5
_HEADER = struct.Struct("!BIH")
_NUMBER = struct.Struct("!I")
_LONGEST = 1 << 15
_CONNECTIONS = 64
_TASKS = 4 * _CONNECTIONS


class BrokenFrames(ConnectionError):
    """The other side does not keep to the protocol."""


def frame(kind: int, number: int = 0, payload: bytes = b"") -> bytes:
    """Return a frame: kind, number of the connection, length, payload."""
    return _HEADER.pack(kind, number, len(payload)) + payload


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    """Return kind, number and payload of the next frame.

    Raises:
        BrokenFrames: it is none.
        IncompleteReadError: there is none.
    """
    kind, number, length = _HEADER.unpack(await reader.readexactly(_HEADER.size))
    if not OPEN <= kind <= END or length > _LONGEST:
        raise BrokenFrames(f"a frame of kind {kind} with {length} bytes")
    return kind, number, await reader.readexactly(length)


class _Connection:
    """One connection: how much may still be sent, and what came and is not yet written."""

    def __init__(self) -> None:
        self.credit = WINDOW
        self.may_send = asyncio.Event()
        self.arrived: asyncio.Queue[bytes] = asyncio.Queue()
        self.held = 0
        self.ended = False
        self.task: asyncio.Future[Any] | None = None

    def takes(self, kind: int, payload: bytes) -> bool:
        """Say whether data, or the end of it, may come now: nothing after the end, no more than the window."""
        return not self.ended and bool(payload) == (kind == DATA) and self.held + len(payload) <= WINDOW


class Mux:
    """Carries connections in frames over one pair of streams; each has a window, so that none holds up the others.

    `serve` answers the connections that the other side opens, `output` is given what its command prints. A side
    without `serve` opens them.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        serve: Serve | None = None,
        output: Callable[[bytes], None] | None = None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._serve = serve
        self._output = output
        self._turn = asyncio.Lock()
        self._connections: dict[int, _Connection] = {}
        self._tasks: set[asyncio.Future[None]] = set()
        self._opened = 0

    async def run(self) -> bytes:
        """Take frames until the last one, whose payload is returned.

        Raises:
            ConnectionError: the other side broke the protocol.
            IncompleteReadError: it went away.
        """
        try:
            while True:
                kind, number, payload = await read_frame(self._reader)
                if kind == END:
                    return payload
                self._take(kind, number, payload)
        finally:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def send(self, kind: int, number: int = 0, payload: bytes = b"") -> None:
        """Send a frame, in turn."""
        async with self._turn:
            self._writer.write(frame(kind, number, payload))
            await self._writer.drain()

    async def open(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Have the other side serve a connection that was made here; of too many at once the last is closed."""
        # half: the other side may not yet have seen the end of those that ended here
        if len(self._connections) >= _CONNECTIONS // 2:
            writer.close()
            return
        self._opened += 1
        number = self._opened
        connection = self._connections[number] = _Connection()
        await self.send(OPEN, number)
        await self._carry(number, connection, reader, writer)

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        """Note what a frame says. Never waits: a connection that is slow must not hold up the others."""
        connection = self._connections.get(number)
        if kind == OPEN:
            self._accept(number)
        elif kind == OUTPUT and self._output is not None:
            if payload:
                self._output(payload)
        elif connection is None:
            return  # it ended here while this was under way
        elif kind == RESET:
            if connection.task is not None:
                connection.task.cancel()
        elif kind == CREDIT and len(payload) == _NUMBER.size:
            connection.credit = min(connection.credit + _NUMBER.unpack(payload)[0], WINDOW)
            connection.may_send.set()
        elif kind in (DATA, EOF) and connection.takes(kind, payload):
            connection.held += len(payload)
            connection.ended = kind == EOF
            connection.arrived.put_nowait(payload)
        else:
            raise BrokenFrames(f"a frame of kind {kind} with {len(payload)} bytes out of place")

    def _accept(self, number: int) -> None:
        if self._serve is None or number in self._connections:
            raise BrokenFrames("a connection nobody asked for")
        # a task may wait for as long as the other side reads nothing, so they are counted as well
        if len(self._connections) >= _CONNECTIONS or len(self._tasks) >= _TASKS:
            raise BrokenFrames("more connections at once than anybody needs")
        connection = self._connections[number] = _Connection()
        connection.task = self._start(self._serve_one(number, connection, self._serve))

    def _start(self, work: Awaitable[None]) -> asyncio.Future[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve_one(self, number: int, connection: _Connection, serve: Serve) -> None:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        self._start(serve(*await asyncio.open_connection(sock=theirs)))
        await self._carry(number, connection, reader, writer)

    async def _carry(
        self, number: int, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carry one connection until both directions have ended."""
        both = [
            asyncio.ensure_future(self._outwards(number, connection, reader)),
            asyncio.ensure_future(self._inwards(number, connection, writer)),
        ]
        connection.task = ended = asyncio.gather(*both)
        try:
            await ended
        except OSError:
            self._start(self.send(RESET, number))
        finally:
            for task in both:
                task.cancel()
            del self._connections[number]
            writer.close()

    async def _outwards(self, number: int, connection: _Connection, reader: asyncio.StreamReader) -> None:
        while True:
            while connection.credit == 0:
                connection.may_send.clear()
                await connection.may_send.wait()
            chunk = await reader.read(min(_LONGEST, connection.credit))
            if not chunk:
                return await self.send(EOF, number)
            connection.credit -= len(chunk)
            await self.send(DATA, number, chunk)

    async def _inwards(self, number: int, connection: _Connection, writer: asyncio.StreamWriter) -> None:
        while True:
            chunk = await connection.arrived.get()
            if not chunk:
                return writer.write_eof()
            writer.write(chunk)
            await writer.drain()
            connection.held -= len(chunk)
            await self.send(CREDIT, number, _NUMBER.pack(len(chunk)))


async def standard_streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return stdin and stdout as streams."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    nothing = asyncio.StreamReader()
    transport, protocol = await loop.connect_write_pipe(lambda: asyncio.StreamReaderProtocol(nothing), sys.stdout)
    # draining is then waiting until all is written
    transport.set_write_buffer_limits(0)
    return reader, asyncio.StreamWriter(transport, protocol, nothing, loop)


def job_bytes(job: dict[str, object]) -> bytes:
    """Return a job as it is sent."""
    text = json.dumps(job).encode()
    return _NUMBER.pack(len(text)) + text


async def main() -> None:
    """Run the job that comes on stdin."""
    reader, writer = await standard_streams()
    job = json.loads(await reader.readexactly(_NUMBER.unpack(await reader.readexactly(_NUMBER.size))[0]))
    _prepare(job["folders"], job["files"])
    if "room" in job:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        memory = job["room"]["memory"] if hard == resource.RLIM_INFINITY else min(hard, job["room"]["memory"])
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    mux = Mux(reader, writer)
    # nobody is left to be told, and the command ends with this process
    asyncio.ensure_future(mux.run()).add_done_callback(lambda _task: os._exit(1))
    server = await asyncio.start_server(mux.open, "127.0.0.1", 0)
    proxy = "http://127.0.0.1:{}".format(*server.sockets[0].getsockname()[1:])
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", *job["command"]),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**job["environment"], "PIP_PROXY": proxy},
    )
    assert command.stdout is not None
    overfull = asyncio.ensure_future(_watch(job["room"], command)) if "room" in job else None
    while True:
        printed = await command.stdout.read(_LONGEST)
        if not printed:
            break
        await mux.send(OUTPUT, 0, printed)
    ended = await command.wait()
    if overfull is not None and (overfull.done() or _holds_too_much(job["room"])):
        ended = OVERFULL
    await mux.send(END, 0, json.dumps({"exit_code": ended}).encode())
    os._exit(0)


async def _watch(room: dict[str, Any], command: asyncio.subprocess.Process) -> None:
    """End the command once its folder holds too much."""
    loop = asyncio.get_running_loop()
    while True:
        if await loop.run_in_executor(None, _holds_too_much, room):
            return command.kill()
        await asyncio.sleep(_LOOK_SECONDS)


def _holds_too_much(room: dict[str, Any]) -> bool:
    size = files = 0
    for place, folders, names in os.walk(room["folder"]):
        files += len(folders) + len(names)
        for name in names:
            try:
                size += Path(place, name).lstat().st_size
            except OSError:
                continue  # moved while it was counted
        if size > room["size"] or files > room["files"]:
            return True
    return False


def _prepare(folders: list[str], files: dict[str, str]) -> None:
    for folder in folders:
        Path(folder).mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        Path(path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
