"""Serves the review page on the loopback interface, only to browsers that have the token."""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request, cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from agent.datasets.encoding import dumps, loads
from agent.errors import AgentError, UsageError
from agent.views.pages import load_review_parts
from agent.views.review_session import LabelSession

_LOOPBACK = "127.0.0.1"
_MAX_BODY_BYTES = 1 << 18
CONNECTION_SECONDS = 20.0
"""Time limit for a connection. Browsers then open another one."""
_NUMBER = re.compile(r"[0-9]{1,18}")
_TOKEN_BYTES = 24
_COOKIE = "agent-review"
# Host names that always resolve to this machine. Any other name could indicate an attack (DNS rebinding). The port may
# differ from the server's own port because of port forwarding (ssh -L).
_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.ASCII)

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every response."""


class Gate:
    """Controls access with a token.

    The first request passes the token in the URL, and later requests pass it in a cookie. `path` is the secret path of
    the page. Browsers send cookies to all ports of a host, so the cookie is limited to this path. Other servers on this
    machine never receive the cookie.
    """

    def __init__(self, token: str | None = None) -> None:
        self.token = token or secrets.token_urlsafe(_TOKEN_BYTES)
        self.path = f"/{secrets.token_urlsafe(_TOKEN_BYTES)}/"
        self._tickets: set[str] = set()

    def issue_ticket(self) -> str:
        """Return a single-use token for a browser's command line, which every user of the machine can read."""
        ticket = secrets.token_urlsafe(_TOKEN_BYTES)
        self._tickets.add(ticket)
        return ticket

    def explain_refusal(self, method: str, headers: Mapping[str, str], token: str | None = None) -> str | None:
        """Return why a request is refused, or None if it is allowed.

        `headers` has lower-case names. `token` is the token in the URL, if any.
        """
        host = headers.get("host", "")
        if not _HOST.fullmatch(host):
            return "Open this page at 127.0.0.1 or localhost."
        if not self._accept_token(token) and not self._matches_token(
            cookie_parser(headers.get("cookie", "")).get(_COOKIE, "")
        ):
            return "The token is missing or wrong. Open the address that the command printed."
        if method not in ("GET", "HEAD") and headers.get("origin") != f"http://{host}":
            return "Only the review page may send reviews (wrong Origin header)."
        return None

    def make_cookie(self) -> str:
        """Return the `Set-Cookie` value that stores the token."""
        return f"{_COOKIE}={self.token}; Path={self.path}; HttpOnly; SameSite=Strict"

    def _accept_token(self, token: str | None) -> bool:
        if token is None:
            return False
        if token in self._tickets:
            self._tickets.discard(token)
            return True
        return self._matches_token(token)

    def _matches_token(self, token: str) -> bool:
        return secrets.compare_digest(token.encode("utf-8", "surrogatepass"), self.token.encode())


def listen(port: int = 0) -> socket.socket:
    """Return a socket that listens on the loopback interface, on a free port if `port` is 0.

    Raises:
        UsageError: the port is in use or not permitted.
    """
    try:
        return socket.create_server((_LOOPBACK, port), backlog=128)
    except OSError as error:
        raise UsageError(f"cannot listen on port {port} ({error.strerror}). Omit --port to use a free port.") from error


async def serve(session: LabelSession, gate: Gate, listening: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serve until the task is cancelled, then finish open requests. `on_ready` is called once requests are accepted."""
    config = uvicorn.Config(
        build_application(session, gate),
        http=_Protocol,
        access_log=False,  # the access log would contain the token
        log_config=None,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=5,
    )
    await _Server(config, on_ready).serve(sockets=[listening])


def build_application(session: LabelSession, gate: Gate) -> ASGIApp:
    """Build the ASGI application that serves the page and its data to requests that pass the gate."""

    def make_route(name: str, media_type: str, content: str) -> Route:
        async def serve_part(_request: Request) -> Response:
            headers = {"Set-Cookie": gate.make_cookie()} if not name else None
            return Response(content, media_type=media_type, headers=headers)

        return Route(f"/{name}", serve_part)

    async def redirect_to_page(_request: Request) -> Response:
        # If the link was opened from another site (a terminal in a browser), the browser would not send a cookie that
        # is set here. The redirect therefore contains a token. It is a single-use token, because the browser history
        # may keep it.
        return RedirectResponse(f"{gate.path}?token={gate.issue_ticket()}", 303)

    # The handlers access files on the event loop, which takes milliseconds for a single reviewer.
    async def get_session(_request: Request) -> Response:
        return _respond_json(session.describe_session())

    async def get_pair(request: Request) -> Response:
        return _respond_json(session.show(_parse_number(request)))

    async def post_review(request: Request) -> Response:
        return _respond_json(session.commit(_parse_number(request), await _read_body(request)))

    async def post_reviewer(request: Request) -> Response:
        return _respond_json(session.change_reviewer(await _read_body(request)))

    routes = [
        *(make_route(name, *content) for name, content in load_review_parts().items()),
        Route("/api/session", get_session),
        Route("/api/reviewer", post_reviewer, methods=["POST"]),
        Route("/api/pairs/{number}", get_pair),
        Route("/api/pairs/{number}", post_review, methods=["POST"]),
    ]
    # The printed address only redirects, so a browser's command line does not reveal the path of the page.
    top_routes = [Route("/", redirect_to_page), Mount(gate.path.rstrip("/"), routes=routes)]
    return _Guarded(
        Starlette(routes=top_routes, exception_handlers=dict.fromkeys((AgentError, ClientDisconnect), _respond_error)),
        gate,
    )


class _Server(uvicorn.Server):
    """A server that shuts down gracefully when its task is cancelled."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Leave signal handling to the caller."""
        return nullcontext()

    async def main_loop(self) -> None:
        """Serve until the task is cancelled. Uvicorn then shuts down gracefully."""
        with suppress(asyncio.CancelledError):
            await super().main_loop()


class _Protocol(H11Protocol):
    """Closes each connection after a time limit, so that none stays open for a request that is only half sent."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(CONNECTION_SECONDS, self._end)

    def _end(self) -> None:
        if not self.transport.is_closing():
            self.shutdown()  # a request that was received completely still gets its response
            self.loop.call_later(CONNECTION_SECONDS, self.transport.close)


class _Guarded:
    """Middleware that checks every request at the gate and adds the headers to every response."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        headers = {name.lower(): value for name, value in Headers(scope=scope).items()}
        # Ignore tokens in other URLs, because only the page removes the token from the browser history.
        accepts_token = scope["path"] in ("/", self._gate.path)
        token = QueryParams(scope["query_string"]).get("token") if accepts_token else None
        refusal = self._gate.explain_refusal(scope["method"], headers, token)
        app = self._app if refusal is None else PlainTextResponse(refusal + "\n", status_code=403)
        await app(scope, receive, send_with_headers)


def _parse_number(request: Request) -> int:
    # Starlette's int converter accepts any number of digits, but Python raises an error if there are too many.
    digits = _NUMBER.fullmatch(request.path_params["number"])
    if digits is None:
        raise HTTPException(404)
    return int(digits[0])


async def _read_body(request: Request) -> object:
    if request.headers.get("content-type", "").split(";")[0] != "application/json":
        raise UsageError("the request must have the content type application/json")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BODY_BYTES:
            raise UsageError(f"the request is longer than {_MAX_BODY_BYTES:,} bytes")
    try:
        return loads(body)
    except ValueError as error:
        raise UsageError(f"the request is not valid JSON: {error}") from None


def _respond_json(value: Any, status: int = 200) -> Response:
    return Response(dumps(value), status, media_type="application/json")


def _respond_error(_request: Request, error: Exception) -> Response:
    return _respond_json({"error": str(error)}, 400 if type(error) is UsageError else 500)
