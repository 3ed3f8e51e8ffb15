"""A TCP proxy for the local Docker engine whose connections tests can cut."""

from __future__ import annotations

import asyncio
import ssl


class Proxy:
    """Forwards connections to the local engine until `cut`. Can be opened again on the same port."""

    def __init__(self, encryption: ssl.SSLContext | None = None) -> None:
        self.port = 0
        self._encryption = encryption
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server

    async def open(self) -> None:
        """Listen on a free port, or on the same port after a cut."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._encryption)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> int:
        """Abort every connection and refuse new ones. Returns the number of connections."""
        self._server.close()
        connections = len(self._writers) // 2
        for writer in self._writers:
            writer.transport.abort()
        return connections

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        engine_reader, engine_writer = await asyncio.open_unix_connection("/var/run/docker.sock")
        writers = {writer, engine_writer}
        self._writers |= writers
        try:
            if self._server.is_serving():
                await asyncio.gather(_copy(reader, engine_writer), _copy(engine_reader, writer))
        finally:
            self._writers -= writers
            for end in writers:
                end.transport.abort()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
    except ConnectionError:
        pass
    target.close()
