"""A real HTTP server with OpenAI's files, batches and completions; it fails lines, expires batches and restarts.

    with BatchServer(folder, f"{__name__}:answer", Faults(failing=0.1, expiring=(2,))) as server:
        ...  # base_url=server.url
    server.count_replies()  # how often each request was answered, and thus paid for, by custom_id

The server is a separate process that can be killed (`kill`) and restarted on the same port. All its state is on disk.
Each request for a batch advances it by one step: validating, in progress with half of its lines answered, ended.
Replies come from a function `module:name` of a request's body. It returns a text, or raises an exception to fail the
line.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import RLock
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from tests.llm.server import free_port

_TABLES = """
    CREATE TABLE IF NOT EXISTS files (id INTEGER PRIMARY KEY, content BLOB);
    CREATE TABLE IF NOT EXISTS batches (id INTEGER PRIMARY KEY, record TEXT);
    CREATE TABLE IF NOT EXISTS answered (custom_id TEXT, batch INTEGER, outcome TEXT);
    CREATE TABLE IF NOT EXISTS live (body TEXT);
"""


@dataclass(frozen=True)
class Faults:
    """Faults of the server. Batches are numbered from 1.

    `failing` is the share of lines that fail with a server error, drawn again at every attempt. Batches in `expiring`
    expire with half of their lines done. Batches in `rejected` fail their validation with `code`. Creating a batch in
    `unacknowledged` gets no response; one in `lost` is not created either. Batches in `forgotten` are unknown when
    retrieved, and those in `emptied` have no output file. All lines of those in `unpaid` fail for lack of credit.
    Requests for those in `refused` fail with HTTP 400. Operations in `html`, such as `GET batches`, return a
    web page. `enqueued` is the maximum number of requests in batches; further batches are rejected.
    """

    failing: float = 0.0
    expiring: tuple[int, ...] = ()
    rejected: tuple[int, ...] = ()
    code: str = "invalid_json_line"
    unacknowledged: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    forgotten: tuple[int, ...] = ()
    emptied: tuple[int, ...] = ()
    unpaid: tuple[int, ...] = ()
    refused: tuple[int, ...] = ()
    enqueued: int = 50_000
    html: tuple[str, ...] = ()


class BatchServer:
    """Starts the server in `folder` and stops it."""

    def __init__(self, folder: Path, answer: str, faults: Faults | None = None) -> None:
        self.folder = folder
        self._port = free_port()
        self._arguments = [str(folder), str(self._port), answer, json.dumps(asdict(faults or Faults()))]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The base URL, with `/v1`."""
        return f"http://127.0.0.1:{self._port}/v1"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start the server on its port, and wait until it listens."""
        self.folder.mkdir(exist_ok=True)
        self._process = subprocess.Popen([sys.executable, "-m", __name__, *self._arguments])
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port)).close()
                return
            except ConnectionRefusedError:
                assert self._process.poll() is None
                time.sleep(0.02)

    def kill(self) -> None:
        """Kill the server, as in a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def count_replies(self) -> Counter[str]:
        """Return how often each request got a reply."""
        return Counter(name for (name,) in self._rows("SELECT custom_id FROM answered WHERE outcome = 'reply'"))

    def count_failures(self) -> Counter[str]:
        """Return how often each request failed."""
        return Counter(name for (name,) in self._rows("SELECT custom_id FROM answered WHERE outcome = 'failure'"))

    def list_batches(self) -> list[dict[str, Any]]:
        """Return the batches in order of creation."""
        return [json.loads(record) for (record,) in self._rows("SELECT record FROM batches ORDER BY id")]

    def list_requests(self) -> list[dict[str, Any]]:
        """Return all lines of the batches."""
        rows = dict(self._rows("SELECT id, content FROM files"))
        files = [rows[_parse_number(batch["input_file_id"])] for batch in self.list_batches()]
        return [json.loads(line) for content in files for line in content.splitlines()]

    def list_live_requests(self) -> list[dict[str, Any]]:
        """Return the bodies of requests outside batches."""
        return [json.loads(body) for (body,) in self._rows("SELECT body FROM live")]

    def _rows(self, query: str) -> list[Any]:
        with closing(sqlite3.connect(self.folder / "server.sqlite")) as database:
            return database.execute(query).fetchall()


class _Unacknowledged(Exception):
    """Raised to send the client no response."""


class _Service:
    """The server's operations, one request at a time."""

    def __init__(self, folder: Path, answer: Callable[[dict[str, Any]], str], faults: Faults) -> None:
        self.lock = RLock()
        self._reply = answer
        self._faults = faults
        self._database = sqlite3.connect(
            folder / "server.sqlite", check_same_thread=False, isolation_level=None, timeout=30
        )
        self._database.executescript(f"PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; {_TABLES}")
        self._creations = 0

    def handle(self, method: str, path: str, query: dict[str, list[str]], body: bytes) -> dict[str, Any] | bytes:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            return self._handle(method, path.removeprefix("/v1/").split("/"), query, body)
        finally:
            self._database.execute("COMMIT")

    def _handle(self, method: str, path: list[str], query: dict[str, list[str]], body: bytes) -> dict[str, Any] | bytes:
        if f"{method} {path[0]}" in self._faults.html:
            return b"<html>Please log in.</html>"
        match method, path:
            case "POST", ["chat", "completions"]:
                self._database.execute("INSERT INTO live VALUES (?)", (body,))
                return self._complete(json.loads(body))
            case "POST", ["files"]:
                content = _parse_upload(body)
                return {**self._add_file(content), "bytes": len(content), "filename": "batch.jsonl", "purpose": "batch"}
            case "GET", ["files", name, "content"]:
                return self._read_file(name)
            case "POST", ["batches"]:
                return self._create_batch(json.loads(body))
            case "GET", ["batches"]:
                return self._list_batches(int(query.get("limit", ["20"])[0]), query.get("after", [""])[0])
            case "GET", ["batches", name]:
                return self._advance(self._read_batch(name))
        raise KeyError("/".join(path))

    def _add_file(self, content: bytes) -> dict[str, Any]:
        number = self._database.execute("INSERT INTO files (content) VALUES (?)", (content,)).lastrowid
        return {"id": f"file-{number}", "object": "file", "created_at": int(time.time()), "status": "processed"}

    def _read_file(self, name: str) -> bytes:
        row = self._database.execute("SELECT content FROM files WHERE id = ?", (_parse_number(name),)).fetchone()
        if row is None:
            raise KeyError(name)
        return bytes(row[0])

    def _read_batch(self, name: str) -> dict[str, Any]:
        row = self._database.execute("SELECT record FROM batches WHERE id = ?", (_parse_number(name),)).fetchone()
        if row is None or _parse_number(name) in self._faults.forgotten:
            raise KeyError(name)
        if _parse_number(name) in self._faults.refused:
            raise ValueError("a bad request")
        batch: dict[str, Any] = json.loads(row[0])
        return batch

    def _save_batch(self, batch: dict[str, Any]) -> dict[str, Any]:
        record = (json.dumps(batch), _parse_number(batch["id"]))
        self._database.execute("UPDATE batches SET record = ? WHERE id = ?", record)
        return batch

    def _create_batch(self, request: dict[str, Any]) -> dict[str, Any]:
        assert (request["endpoint"], request["completion_window"]) == ("/v1/chat/completions", "24h")
        self._creations += 1
        if self._creations in self._faults.lost:
            raise _Unacknowledged
        number = self._database.execute("INSERT INTO batches (record) VALUES ('')").lastrowid
        lines = len(self._read_file(request["input_file_id"]).splitlines())
        batch = self._save_batch(
            {
                **request,
                "id": f"batch_{number}",
                "object": "batch",
                "created_at": int(time.time()),
                "status": "validating",
                "request_counts": {"total": lines, "completed": 0, "failed": 0},
                "output_file_id": None,
                "error_file_id": None,
                "errors": None,
            }
        )
        if number in self._faults.unacknowledged:
            raise _Unacknowledged
        return batch

    def _list_batches(self, limit: int, after: str) -> dict[str, Any]:
        before = _parse_number(after) if after else 1 << 60
        rows = self._database.execute(
            "SELECT record FROM batches WHERE id < ? ORDER BY id DESC LIMIT ?", (before, limit + 1)
        ).fetchall()
        batches = [json.loads(record) for (record,) in rows[:limit]]
        ends = {"first_id": batches[0]["id"], "last_id": batches[-1]["id"]} if batches else {}
        return {"object": "list", "data": batches, **ends, "has_more": len(rows) > limit}

    def _advance(self, batch: dict[str, Any]) -> dict[str, Any]:
        number, faults = _parse_number(batch["id"]), self._faults
        if batch["status"] == "validating":
            problem = self._find_problem(batch)
            if problem is not None:
                errors = {"object": "list", "data": [{"code": problem, "message": f"refused: {problem}", "line": 1}]}
                return self._save_batch({**batch, "status": "failed", "errors": errors})
            return self._save_batch({**batch, "status": "in_progress"})
        if batch["status"] != "in_progress":
            return batch
        lines = [json.loads(line) for line in self._read_file(batch["input_file_id"]).splitlines()]
        expires = number in faults.expiring
        answered_lines = lines[: len(lines) // 2] if expires else lines
        replies, failures = [], []
        for line in answered_lines:
            unpaid = _make_error(429, "You exceeded your quota.", "insufficient_quota"), "failure"
            response, outcome = unpaid if number in faults.unpaid else self._answer_line(line)
            record = {"id": f"batch_req_{number}", "custom_id": line["custom_id"], "response": response, "error": None}
            (replies if outcome == "reply" else failures).append(record)
            values = (line["custom_id"], number, outcome)
            self._database.execute("INSERT INTO answered VALUES (?, ?, ?)", values)
        expired = {"code": "batch_expired", "message": "This request could not be executed in time."}
        for line in lines[len(answered_lines) :]:
            failures.append({"id": "batch_req_0", "custom_id": line["custom_id"], "response": None, "error": expired})
        counts = {"total": len(lines), "completed": len(replies), "failed": len(failures)}
        return self._save_batch(
            {
                **batch,
                "status": "expired" if expires else "completed",
                "request_counts": counts,
                "output_file_id": "file-0" if number in faults.emptied else self._add_file(_join_lines(replies))["id"],
                "error_file_id": self._add_file(_join_lines(failures))["id"] if failures else None,
            }
        )

    def _find_problem(self, batch: dict[str, Any]) -> str | None:
        if _parse_number(batch["id"]) in self._faults.rejected:
            return self._faults.code
        lines = [json.loads(line) for line in self._read_file(batch["input_file_id"]).splitlines()]
        rows = self._database.execute("SELECT record FROM batches").fetchall()
        others = [json.loads(record) for (record,) in rows]
        queued = sum(other["request_counts"]["total"] for other in others if other["status"] == "in_progress")
        if queued + len(lines) > self._faults.enqueued:
            return "token_limit_exceeded"
        if len({line["custom_id"] for line in lines}) < len(lines):
            return "duplicate_custom_id"
        return None if len({line["body"]["model"] for line in lines}) == 1 else "model_mismatch"

    def _answer_line(self, line: dict[str, Any]) -> tuple[dict[str, Any], str]:
        (attempts,) = self._database.execute(
            "SELECT count(*) FROM answered WHERE custom_id = ?", (line["custom_id"],)
        ).fetchone()
        luck = int.from_bytes(hashlib.sha256(f"{line['custom_id']} {attempts}".encode()).digest()[:4])
        if luck < self._faults.failing * 2**32:
            return _make_error(500, "The server had an error while processing your request."), "failure"
        try:
            return {"status_code": 200, "request_id": "r", "body": self._complete(line["body"])}, "reply"
        except ValueError as error:
            return _make_error(400, str(error)), "failure"

    def _complete(self, body: dict[str, Any]) -> dict[str, Any]:
        text = self._reply(body)
        read, written = sum(len(message["content"]) for message in body["messages"]) // 4, len(text) // 4
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
        }


def _make_error(status: int, message: str, code: str | None = None) -> dict[str, Any]:
    return {"status_code": status, "request_id": "r", "body": {"error": {"message": message, "code": code}}}


def _parse_number(name: str) -> int:
    return int(name.rpartition("-" if name.startswith("file") else "_")[2])


def _join_lines(records: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def _parse_upload(body: bytes) -> bytes:
    """Return the content of the part `file` of a form."""
    boundary = body.partition(b"\r\n")[0]
    for part in body.split(boundary):
        head, _, content = part.partition(b"\r\n\r\n")
        if b'name="file"' in head:
            return content.removesuffix(b"\r\n")
    raise KeyError("file")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: _Service

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def _serve(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        url = urlsplit(self.path)
        status = 200
        try:
            with self.service.lock:
                response = self.service.handle(method, url.path, parse_qs(url.query), body)
        except _Unacknowledged:
            self.close_connection = True
            return
        except KeyError as error:
            status, response = 404, {"error": {"message": f"no such thing: {error}", "code": None}}
        except ValueError as error:
            status, response = 400, {"error": {"message": str(error), "code": None}}
        content = response if isinstance(response, bytes) else json.dumps(response).encode()
        kind = "application/octet-stream" if isinstance(response, bytes) else "application/json"
        head = f"HTTP/1.1 {status} x\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
        self.wfile.write(head.encode() + content)

    def log_message(self, *_: object) -> None:
        return


def _main(folder: str, port: str, answer: str, faults: str) -> None:
    module, _, name = answer.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in json.loads(faults).items()}
    _Handler.service = _Service(Path(folder), getattr(importlib.import_module(module), name), Faults(**fields))
    ThreadingHTTPServer.allow_reuse_address = True
    ThreadingHTTPServer(("127.0.0.1", int(port)), _Handler).serve_forever()


if __name__ == "__main__":
    _main(*sys.argv[1:])
