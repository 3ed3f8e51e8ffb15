"""HTTP clients for model servers. They follow no redirects, and limit the size and the duration of a response."""

from __future__ import annotations

import asyncio
import time
from itertools import cycle
from typing import Any

import httpx2
import openai

from agent.llm.base import MOST_REPLY_BYTES
from agent.llm.failures import Failure
from agent.types import Usage

_POOLS = 16
_CONNECTIONS = 128
# A redirect would send the key to another server.
_OPTIONS: dict[str, Any] = {"follow_redirects": False, "headers": {"Accept-Encoding": "gzip"}}


class AsyncClient(openai.DefaultAsyncHttpxClient):
    """Spreads requests over several clients, because a client searches all connections in its pool for each request.

    Only successful responses are streamed.
    """

    def __init__(self) -> None:
        options: dict[str, Any] = {
            **_OPTIONS,
            "verify": httpx2.create_ssl_context(),
            "limits": httpx2.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS),
        }
        super().__init__(**options)
        self._clients = [openai.DefaultAsyncHttpxClient(**options) for _ in range(_POOLS)]
        self._turns = cycle(self._clients)

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        response = await next(self._turns).send(request, stream=True, **options)
        body = _Body(response)
        try:
            body.check_encoding()
            if stream and response.is_success:
                return response
            async with asyncio.timeout(body.seconds):
                async for part in response.aiter_bytes():
                    body.add(part)
        except BaseException as error:
            await response.aclose()
            if isinstance(error, TimeoutError):
                raise httpx2.ReadTimeout("the response is incomplete", request=request) from error
            raise
        return body.build_response()

    async def aclose(self) -> None:
        for client in self._clients:
            await client.aclose()
        await super().aclose()


class SyncClient(openai.DefaultHttpxClient):
    """The client for synchronous calls. It streams no responses."""

    def __init__(self) -> None:
        super().__init__(**_OPTIONS)

    def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:  # noqa: ARG002
        response = super().send(request, stream=True, **options)
        body = _Body(response)
        deadline = time.monotonic() + body.seconds
        try:
            body.check_encoding()
            for part in response.iter_bytes():
                body.add(part)
                if time.monotonic() > deadline:
                    raise httpx2.ReadTimeout("the response is incomplete", request=request)
        finally:
            response.close()
        return body.build_response()


class _Body:
    """Collects the body of a response. `seconds` is the time limit for the whole body."""

    def __init__(self, response: httpx2.Response) -> None:
        self.seconds = float(response.request.extensions["timeout"]["read"])
        self._response = response
        self._parts: list[bytes] = []
        self._size = 0

    def check_encoding(self) -> None:
        """Raise a `Failure` for an encoding that can expand a few bytes to gigabytes, such as zstd."""
        if (encoding := self._response.headers.get("content-encoding", "gzip").lower()) not in ("gzip", "identity"):
            raise Failure(f"returned a response with the encoding {encoding[:20]!r}", "pair", usage=Usage(calls=1))

    def add(self, part: bytes) -> None:
        """Add a decoded part. Raises a `Failure` if the body is too large."""
        self._size += len(part)
        if self._size > MOST_REPLY_BYTES:
            limit = f"{MOST_REPLY_BYTES >> 20} MB"
            raise Failure(f"returned a response of more than {limit}", "pair", usage=Usage(calls=1))
        self._parts.append(part)

    def build_response(self) -> httpx2.Response:
        """Return the response with its decoded body."""
        response, content = self._response, b"".join(self._parts)
        headers = [(name, value) for name, value in response.headers.multi_items() if name != "content-encoding"]
        return httpx2.Response(response.status_code, headers=headers, content=content, request=response.request)
