"""The HTTP client for model servers. It follows no redirects, and limits the size and the duration of a response."""

from __future__ import annotations

import asyncio
from itertools import cycle
from typing import Any

import httpx2
import openai

from agent.llm.base import MOST_REPLY_BYTES
from agent.llm.failures import Failure
from agent.types import Usage

_POOLS = 16
_CONNECTIONS = 128


class AsyncClient(openai.DefaultAsyncHttpxClient):
    """Spreads requests over several clients, because a client searches all connections in its pool for each request.

    Only successful responses are streamed.
    """

    def __init__(self) -> None:
        options: dict[str, Any] = {
            "follow_redirects": False,  # a redirect would send the key to another server
            "headers": {"Accept-Encoding": "gzip"},
            "verify": httpx2.create_ssl_context(),
            "limits": httpx2.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS),
        }
        super().__init__(**options)
        self._clients = [openai.DefaultAsyncHttpxClient(**options) for _ in range(_POOLS)]
        self._turns = cycle(self._clients)

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        response = await next(self._turns).send(request, stream=True, **options)
        try:
            _check_encoding(response)
            if stream and response.is_success:
                return response
            async with asyncio.timeout(request.extensions["timeout"]["read"]):
                content = await _read_body(response)
        except BaseException as error:
            await response.aclose()
            if isinstance(error, TimeoutError):
                raise httpx2.ReadTimeout("the response is incomplete", request=request) from error
            raise
        headers = [(name, value) for name, value in response.headers.multi_items() if name != "content-encoding"]
        return httpx2.Response(response.status_code, headers=headers, content=content, request=request)

    async def aclose(self) -> None:
        for client in self._clients:
            await client.aclose()
        await super().aclose()


def _check_encoding(response: httpx2.Response) -> None:
    """Raise a `Failure` for an encoding that can expand a few bytes to gigabytes, such as zstd."""
    if (encoding := response.headers.get("content-encoding", "gzip").lower()) not in ("gzip", "identity"):
        raise Failure(f"returned a response with the encoding {encoding[:20]!r}", "pair", usage=Usage(calls=1))


async def _read_body(response: httpx2.Response) -> bytes:
    """Return the decoded body. Raises a `Failure` if it is too large."""
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > MOST_REPLY_BYTES:
            limit = f"{MOST_REPLY_BYTES >> 20} MB"
            raise Failure(f"returned a response of more than {limit}", "pair", usage=Usage(calls=1))
    return bytes(body)
