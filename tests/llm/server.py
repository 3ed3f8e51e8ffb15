"""A real HTTP server that speaks OpenAI's chat protocol and misbehaves as scripted.

    with ChatServer([rate_limited(), says("fine")]) as server:
        ...  # base_url=server.url
    server.requests[0].body["model"]

A script is a list of answers, of which the last one is repeated, or a function of the request. The server runs on
threads, so synchronous tests and other processes can use it. Head and body of an answer are sent in one write.
"""

from __future__ import annotations

import gzip
import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Literal, Self


@dataclass(frozen=True)
class Request:
    """One request: its number from 0, path, headers in lower case, and parsed body."""

    number: int
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def prompt(self) -> str:
        """The contents of all messages."""
        return "\n".join(message["content"] for message in self.body["messages"])


@dataclass(frozen=True)
class Answer:
    """One HTTP response. `wait` is the delay in seconds before it is sent.

    `ending`: `whole`; `cut` closes the connection within the body; `keep_alive` sends blank lines forever; `endless`
    repeats the body forever.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    wait: float = 0.0
    ending: Literal["whole", "cut", "keep_alive", "endless", "hang_up"] = "whole"


Respond = Callable[[Request], Answer]


def says(
    text: str | None,
    *,
    prompt_tokens: int = 100,
    completion_tokens: int = 10,
    cached_tokens: int = 0,
    reasoning_tokens: int = 0,
    reasoning: str | None = None,
    finish_reason: str = "stop",
    model: str = "served-model",
    **fields: Any,
) -> Answer:
    """Return a chat completion. `fields` are added to the body or replace parts of it."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "system_fingerprint": "fp_1",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "prompt_tokens_details": {"cached_tokens": cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": reasoning_tokens},
        },
        **fields,
    }
    return Answer(json.dumps(body).encode())


def fails(
    status: int, message: str = "no", *, code: Any = None, type: str | None = None, headers: Any = None
) -> Answer:
    """Return an error in OpenAI's format."""
    error = {"error": {"message": message, "code": code, "type": type, "param": None}}
    return Answer(json.dumps(error).encode(), status=status, headers=headers or {})


def rate_limited(retry_after: str | None = None) -> Answer:
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return fails(429, "Rate limit reached", code="rate_limit_exceeded", headers=headers)


def broken(status: int = 500) -> Answer:
    return fails(status, "The server had an error", type="server_error")


def unauthorized(message: str = "Incorrect API key provided") -> Answer:
    return fails(401, message, code="invalid_api_key", type="invalid_request_error")


def no_credit() -> Answer:
    return fails(402, "Insufficient Balance", code="invalid_request_error")


def no_quota() -> Answer:
    return fails(429, "You exceeded your current quota", code="insufficient_quota", type="insufficient_quota")


def unknown_model() -> Answer:
    return fails(404, "The model `x` does not exist", code="model_not_found", type="invalid_request_error")


def garbage() -> Answer:
    return Answer(b"<html><body>Bad gateway</body></html>", headers={"Content-Type": "text/html"})


def blank() -> Answer:
    return says("   \n", completion_tokens=3)


def half_body() -> Answer:
    """Return half of a JSON object, with a matching content length."""
    body = says("lost").body
    return Answer(body[: len(body) // 2])


def half_content() -> Answer:
    """Return a complete body whose content is half of a JSON object."""
    return says('{"reason": "it sor', finish_reason="length", completion_tokens=7)


def keep_alives() -> Answer:
    """Return status 200, then blank lines forever."""
    return Answer(ending="keep_alive")


def endless(status: int = 200) -> Answer:
    """Return a body that never ends."""
    return Answer(b" " * (1 << 16), status, ending="endless")


def compressed_bomb() -> Answer:
    """Return a reply that decompresses to 64 MiB."""
    body = gzip.compress(b" " * (64 << 20) + says("x").body)
    return Answer(body, headers={"Content-Encoding": "gzip"})


def slow(seconds: float, answer: Answer | None = None) -> Answer:
    base = answer or says("late")
    return Answer(base.body, base.status, base.headers, seconds, base.ending)


def cut() -> Answer:
    """Return status 200 and part of the body, then close the connection."""
    return Answer(says("lost").body, ending="cut")


def hang_up() -> Answer:
    """Close the connection without a response."""
    return Answer(ending="hang_up")


class ChatServer:
    """The server. `requests` are in order of arrival."""

    def __init__(self, script: Sequence[Answer] | Answer | Respond) -> None:
        answers = [script] if isinstance(script, Answer) else script
        self._respond: Respond = answers if callable(answers) else self._in_order(answers)
        self._lock = threading.Lock()
        self.stopping = threading.Event()
        self.requests: list[Request] = []
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.002,), daemon=True)

    @property
    def url(self) -> str:
        """The base URL, with `/v1`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()

    def has_received_all(self) -> bool:
        """After all clients have disconnected, return whether all data sent so far is in `requests`."""
        with socket.create_connection(self._server.server_address) as probe:
            ours = probe.getsockname()
            while ours not in self._server.accepted:  # connections are accepted in order of arrival
                time.sleep(0.001)
        return not self._server.connected - {ours}

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Record a request and choose its answer."""
        fields = json.loads(body) if body else {}
        with self._lock:
            request = Request(len(self.requests), path, headers, fields)
            self.requests.append(request)
        return self._respond(request)

    @staticmethod
    def _in_order(answers: Sequence[Answer]) -> Respond:
        return lambda request: answers[min(request.number, len(answers) - 1)]


def free_port() -> int:
    """Return a free port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, owner: ChatServer) -> None:
        self.owner = owner
        self.accepted: set[Any] = set()
        self.connected: set[Any] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its own thread."""
        self.connected.add(client_address)
        self.accepted.add(client_address)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connected.discard(client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect early, as some tests make them do."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        owner = self.server.owner
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if len(body) < length:  # the client was killed while sending
            return
        answer = owner.answer(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        if answer.wait and owner.stopping.wait(answer.wait):
            return
        self._send(answer)

    def _send(self, answer: Answer) -> None:
        if answer.ending == "hang_up":
            self.close_connection = True
            return
        length = len(answer.body)
        headers = {"Content-Type": "application/json", **answer.headers}
        if answer.ending in ("keep_alive", "endless"):
            headers["Transfer-Encoding"] = "chunked"
        else:
            headers["Content-Length"] = str(length)
        head = [
            f"HTTP/1.1 {answer.status} {_phrase(answer.status)}",
            *(f"{n}: {v}" for n, v in headers.items()),
            "",
            "",
        ]
        body = {"whole": answer.body, "cut": answer.body[: length // 2]}.get(answer.ending, b"")
        self.wfile.write("\r\n".join(head).encode() + body)
        if answer.ending == "cut":
            self.close_connection = True
        while answer.ending == "keep_alive" and not self.server.owner.stopping.wait(0.02):
            self.wfile.write(b"1\r\n\n\r\n")
        while answer.ending == "endless" and not self.server.owner.stopping.is_set():
            self.wfile.write(f"{length:x}\r\n".encode() + answer.body + b"\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Unknown"
