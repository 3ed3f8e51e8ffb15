"""The only way out of a builder: a proxy on the host that reaches the package indexes the user configured."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Collection, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.sandbox.dependencies.egress_request import Place, RefusedRequest, Request, parse, shown
from agent.sandbox.dependencies.folder_pages import FOLDER_HOST, FolderPages

_HEAD_LIMIT = 16 << 10
_CHUNK = 1 << 16
_REFUSED_KEPT = 20
_TROUBLE = (OSError, TimeoutError, EOFError, ssl.SSLError)


@dataclass(frozen=True)
class Upstream:
    """The host's own proxy. `credentials` is `user:password`, `tls` says that it is itself spoken to by TLS."""

    host: str
    port: int
    credentials: str = ""
    tls: bool = False

    @property
    def header(self) -> str:
        """The header line that names the user, or nothing."""
        if not self.credentials:
            return ""
        return f"Proxy-Authorization: Basic {base64.b64encode(self.credentials.encode()).decode()}\r\n"


class BadGateway(Exception):
    """An allowed place, or the host's proxy before it, does not answer as it should."""


class EgressProxy:
    """Carries connections to allowed places and to no other; names are resolved on the host.

    Args:
        allowed: hosts (as `host_name` spells them) and ports.
        upstreams: the allowed places that are reached through the host's own proxy.
        folders: folders of this machine, whose wheels and pages the proxy itself gives under the name `FOLDER_HOST`.
        heaps: folders of which it gives wheels alone.
        with_dates: whether it says of those that they are old, for a pip that is to leave out what is newer.
        size: bytes that may come in, all connections taken together.
        head_seconds: how long a request may take to arrive.
        idle_seconds: how long a connection may be silent.
        connections: how many there may be at once.
    """

    def __init__(
        self,
        allowed: Collection[Place],
        *,
        upstreams: Mapping[Place, Upstream] | None = None,
        folders: Collection[Path] = (),
        heaps: Collection[Path] = (),
        with_dates: bool = False,
        size: int = 2 << 30,
        head_seconds: float = 10.0,
        idle_seconds: float = 300.0,
        connections: int = 32,
    ) -> None:
        self._allowed = frozenset(allowed)
        self._upstreams = dict(upstreams or {})
        self._pages = FolderPages(folders, heaps, with_dates=with_dates)
        self._left = size
        self._head_seconds = head_seconds
        self._idle_seconds = idle_seconds
        self._free = connections
        self.refused: list[str] = []

    @property
    def exhausted(self) -> bool:
        """Whether more came than `size` allows, so that a connection was cut."""
        return self._left < 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection and close it; whatever goes wrong with it is told to the other side alone."""
        self._free -= 1
        try:
            await self._serve(reader, writer)
        except RefusedRequest as error:
            self._note(error.target)
            await _answer(writer, 403, str(error))
        except BadGateway as error:
            await _answer(writer, 502, str(error))
        except _TROUBLE:
            pass  # one side went away: so does the other
        finally:
            self._free += 1
            await _close(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(self._head_seconds):
            head, early = await _head(reader)
        if self._free < 0:
            await _answer(writer, 503, "too many connections at once")
            return
        request = parse(head)
        if request.place == (FOLDER_HOST, 80) and request.method != "CONNECT":
            async for chunk in self._pages.answer(request.method, request.path):
                await self._pass(chunk, writer)
            return
        if request.place not in self._allowed:
            raise RefusedRequest(f"{request.target} is no host of a configured package index", request.target)
        there, out, begun = await self._reach(request)
        try:
            if request.method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await self._pass(begun, writer)
            clock = _Clock(self._idle_seconds)
            inward = self._inward(there, writer, clock)
            if request.method == "CONNECT":
                out.write(early)
                await _both(inward, _outward(reader, out, clock))
            else:
                await inward
        finally:
            await _close(out)

    async def _reach(self, request: Request) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
        """Connect and hand over the request; return the streams and what already came."""
        upstream = self._upstreams.get(request.place)
        host, port = request.place if upstream is None else (upstream.host, upstream.port)
        secure = ssl.create_default_context() if upstream is not None and upstream.tls else None
        try:
            async with asyncio.timeout(self._head_seconds * 2):
                there, out = await asyncio.open_connection(host, port, ssl=secure)
        except _TROUBLE as error:
            via = "" if upstream is None else f" through the proxy {shown((host, port))}"
            raise BadGateway(f"{request.target} cannot be reached{via}: {type(error).__name__}") from error
        try:
            if request.method != "CONNECT":
                out.write(_page_request(request, upstream))
                return there, out, b""
            return there, out, b"" if upstream is None else await self._tunnel(request, upstream, there, out)
        except BaseException:
            await _close(out)
            raise

    async def _tunnel(
        self, request: Request, upstream: Upstream, there: asyncio.StreamReader, out: asyncio.StreamWriter
    ) -> bytes:
        out.write(
            f"CONNECT {request.target} HTTP/1.1\r\nHost: {request.target}\r\n{upstream.header}\r\n".encode("latin-1")
        )
        try:
            async with asyncio.timeout(self._head_seconds * 2):
                answer, begun = await _head(there)
        except (RefusedRequest, *_TROUBLE) as error:
            raise BadGateway("the host's own proxy does not answer") from error
        status = answer.split(b" ", 2)[1:2]
        if not status or not status[0].startswith(b"2"):
            said = answer.split(b"\r\n", 1)[0].decode("latin-1")[:100]
            raise BadGateway(f"the host's own proxy does not connect: {said if said.isprintable() else '?'}")
        return begun

    async def _inward(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, clock: _Clock) -> None:
        while chunk := await clock.read(source):
            await self._pass(chunk, target)
            clock.tick()
        target.write_eof()

    async def _pass(self, chunk: bytes, target: asyncio.StreamWriter) -> None:
        self._left -= len(chunk)
        if self._left < 0:
            raise ConnectionAbortedError("more than may come in")
        target.write(chunk)
        await target.drain()

    def _note(self, target: str) -> None:
        if target not in self.refused and len(self.refused) < _REFUSED_KEPT:
            self.refused.append(target)


class _Clock:
    """Ends reading from either side of a connection once nothing came from both for so long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()

    def tick(self) -> None:
        """Something moved."""
        self._last = self._loop.time()

    async def read(self, source: asyncio.StreamReader) -> bytes:
        """Read what comes.

        Raises:
            TimeoutError: nothing came, on the other side neither.
        """
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._last + self._seconds):
                    chunk = await source.read(_CHUNK)
                self.tick()
                return chunk
            if self._loop.time() >= self._last + self._seconds:
                raise TimeoutError


async def _outward(source: asyncio.StreamReader, target: asyncio.StreamWriter, clock: _Clock) -> None:
    while chunk := await clock.read(source):
        target.write(chunk)
        await target.drain()
        clock.tick()
    if target.can_write_eof():
        target.write_eof()


async def _both(*work: Coroutine[Any, Any, None]) -> None:
    """Run both directions to their ends; when one breaks, so does the other."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _head(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read up to the empty line; return that, and what came behind it."""
    held = b""
    while b"\r\n\r\n" not in held:
        if len(held) > _HEAD_LIMIT:
            raise RefusedRequest("its headers are too long", held[:120].decode("latin-1"))
        chunk = await reader.read(_HEAD_LIMIT)
        if not chunk:
            raise EOFError
        held += chunk
    head, _, rest = held.partition(b"\r\n\r\n")
    if len(head) > _HEAD_LIMIT:
        raise RefusedRequest("its headers are too long", held[:120].decode("latin-1"))
    return head, rest


def _page_request(request: Request, upstream: Upstream | None) -> bytes:
    target = request.path if upstream is None else f"http://{request.target}{request.path}"
    lines = [f"{request.method} {target} HTTP/1.1", f"Host: {request.target}", *request.headers, "Connection: close"]
    credentials = "" if upstream is None else upstream.header
    return ("".join(f"{line}\r\n" for line in lines) + credentials + "\r\n").encode("latin-1")


async def _answer(writer: asyncio.StreamWriter, status: int, reason: str) -> None:
    body = f"{reason}\n".encode()
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    with suppress(OSError):
        writer.write(head.encode("ascii", "replace") + body)
        await writer.drain()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(*_TROUBLE):
        await writer.wait_closed()
