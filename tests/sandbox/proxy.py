"""A TCP way to the local Docker engine that tests can cut."""

from __future__ import annotations

import asyncio
import ssl


class Proxy:
    """Carries connections to the local engine until it is cut; it can come back, at the same port."""

    def __init__(self, encryption: ssl.SSLContext | None = None) -> None:
        self.port = 0
        self._encryption = encryption
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server

    async def open(self) -> None:
        """Listen; after a cut again, where clients knew it."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._encryption)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> int:
        """End every connection at once, and take no more; return how many there were."""
        self._server.close()
        connections = len(self._writers) // 2
        for writer in self._writers:
            writer.transport.abort()
        return connections

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection("/var/run/docker.sock")
        both = {writer, back}
        self._writers |= both
        try:
            if self._server.is_serving():
                await asyncio.gather(_copy(reader, back), _copy(there, writer))
        finally:
            self._writers -= both
            for end in both:
                end.transport.abort()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
    except ConnectionError:
        pass
    target.close()
