"""Asyncio streams for an attached container: raw stdin, demultiplexed stdout and stderr."""

from __future__ import annotations

import asyncio
import selectors
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

STDOUT, STDERR = 1, 2
_HEADER_LENGTH = 8
_BUFFER = 1 << 18
_STDERR_TAIL = 4096


class MalformedStream(ConnectionError):
    """The engine sent bytes that are not in its multiplexed format. The connection can no longer be used."""


class Demultiplexer:
    """Parses the frames that the engine sends for stdout and stderr.

    A frame consists of a stream number, three zero bytes, the length of the payload (4 bytes, big endian) and the
    payload. A received chunk may end anywhere in a frame. Payload data is passed on immediately, so only an incomplete
    header is ever buffered.
    """

    def __init__(self) -> None:
        self._data = b""
        self._stream = 0
        self._remaining = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Parse received bytes and yield each part of a payload with its stream number.

        Raises:
            MalformedStream: the header of a frame is invalid.
        """
        self._data += data
        while self._remaining or len(self._data) >= _HEADER_LENGTH:
            if self._remaining == 0:
                header, self._data = self._data[:_HEADER_LENGTH], self._data[_HEADER_LENGTH:]
                if header[0] > STDERR or header[1:4] != b"\0\0\0":
                    raise MalformedStream(f"the engine sent an invalid frame header in the attached stream: {header!r}")
                self._stream, self._remaining = header[0], int.from_bytes(header[4:], "big")
            payload, self._data = self._data[: self._remaining], self._data[self._remaining :]
            self._remaining -= len(payload)
            if payload:
                yield self._stream, payload
            elif self._remaining:
                return


class _DemultiplexingProtocol(asyncio.StreamReaderProtocol):
    """Passes stdout to the reader and stores the last bytes of stderr for error messages."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self.stderr = b""
        self._target = reader
        self._demultiplexer = Demultiplexer()

    def data_received(self, data: bytes) -> None:
        try:
            for stream, payload in self._demultiplexer.feed(data):
                if stream == STDOUT:
                    super().data_received(payload)
                elif stream == STDERR:
                    self.stderr = (self.stderr + payload)[-_STDERR_TAIL:]
        except MalformedStream as error:
            self._target.set_exception(error)


class AttachedStream:
    """A container's standard streams: `reader` reads from stdout, `writer` writes to stdin."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, protocol: Any) -> None:
        self.reader = reader
        self.writer = writer
        self._protocol: _DemultiplexingProtocol = protocol

    @classmethod
    async def open(cls, connection: socket.socket) -> AttachedStream:
        """Wrap the connected socket of an attach request. The stream takes ownership of the socket."""
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_BUFFER, loop=loop)
        protocol = _DemultiplexingProtocol(reader)
        transport, _ = await loop.create_connection(lambda: protocol, sock=connection)
        return cls(reader, asyncio.StreamWriter(transport, protocol, reader, loop), protocol)

    @property
    def stderr(self) -> str:
        """The end of the container's stderr, as text."""
        return self._protocol.stderr.decode("utf-8", "replace").strip()

    @property
    def at_eof(self) -> bool:
        """Whether the stream has ended or failed, for example because the container exited."""
        return self.reader.at_eof() or self.reader.exception() is not None

    def close(self) -> None:
        """Abort the connection immediately.

        If the container was created with `StdinOnce`, the engine then closes its stdin.
        """
        self.writer.transport.abort()


def as_plain_socket(connection: Any) -> socket.socket:
    """Convert the result of docker-py's `attach_socket` (Unix, TCP, TLS or SSH) to a socket that asyncio can use.

    asyncio cannot use an established TLS socket or an SSH channel. For these, a thread relays the data through a
    socket pair.
    """
    inner = getattr(connection, "_sock", connection)
    if type(inner) is socket.socket:
        duplicate = inner.dup()
        connection._response.close()
        return duplicate
    ours, theirs = socket.socketpair()
    threading.Thread(target=_relay, args=(connection, theirs), name="agent-attach", daemon=True).start()
    return ours


def _relay(remote: Any, local: socket.socket) -> None:
    """Forward bytes in both directions until either side is closed.

    The connection belongs to an HTTP response, which stays open as long as this function refers to `remote`.
    """
    remote.setblocking(False)
    local.setblocking(False)
    with selectors.DefaultSelector() as selector, local, suppress(OSError):
        selector.register(remote, selectors.EVENT_READ)
        selector.register(local, selectors.EVENT_READ)
        open_ends = True
        while open_ends:
            ready = {key.fileobj for key, _ in selector.select()}
            for source, target in ((remote, local), (local, remote)):
                if source in ready:
                    open_ends = _forward(source, target) and open_ends
    remote.close()
    remote._response.close()


def _forward(source: Any, target: Any) -> bool:
    """Forward all available bytes. Return whether the source is still open."""
    while True:
        try:
            data = source.recv(1 << 16)
        except (BlockingIOError, ssl.SSLWantReadError, TimeoutError):
            return True
        if not data:
            return False
        _send_all(target, data)


def _send_all(target: Any, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[target.send(view) :]
        except (BlockingIOError, ssl.SSLWantWriteError, TimeoutError):
            with selectors.DefaultSelector() as selector:
                selector.register(target, selectors.EVENT_WRITE)
                selector.select()
