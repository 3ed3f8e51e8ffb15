"""A real HTTP server with OpenAI's files, batches and completions; it fails lines, expires batches and restarts.

    with BatchServer(folder, f"{__name__}:answer", Faults(failing=0.1, expiring=(2,))) as server:
        ...  # base_url=server.url
    server.answered()  # how often each request was answered, by custom_id: so often it was paid for

It is a process of its own, may be killed (`kill`) and started again on the same port, and keeps all it knows on disk. A
batch takes a step each time it is looked at: validating, in progress with half of its lines answered, ended. What
answers is a function `module:name` of a request's body: a text, or an exception to fail the line with.
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
    """What goes wrong; batches are counted from 1.

    `failing` is the share of lines that fail with a server's error at each of their tries, unlike from try to try.
    Batches that are `expiring` end so with half of their lines done, those `rejected` are by validation, for this
    `code`. Of those `unacknowledged` the client that creates them gets no answer; of those `lost` not even the server
    knows; it does not know those `forgotten` any more when asked, nor the output of those `emptied`. All lines of
    those `unpaid` fail for want of credit; of those `refused` it says nothing but HTTP 400. `enqueued` is how many
    requests may be in batches at once, more are rejected.
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
        """Start it, on the port that it always has, and wait until it listens."""
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
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def answered(self) -> Counter[str]:
        """Return how often each request was answered with a reply."""
        return Counter(name for (name,) in self._rows("SELECT custom_id FROM answered WHERE outcome = 'reply'"))

    def failed(self) -> Counter[str]:
        """Return how often each request failed by itself."""
        return Counter(name for (name,) in self._rows("SELECT custom_id FROM answered WHERE outcome = 'failure'"))

    def batches(self) -> list[dict[str, Any]]:
        """Return the batches, the first one first."""
        return [json.loads(record) for (record,) in self._rows("SELECT record FROM batches ORDER BY id")]

    def requests(self) -> list[dict[str, Any]]:
        """Return all lines of the batches that were created."""
        rows = dict(self._rows("SELECT id, content FROM files"))
        files = [rows[_number(batch["input_file_id"])] for batch in self.batches()]
        return [json.loads(line) for content in files for line in content.splitlines()]

    def live(self) -> list[dict[str, Any]]:
        """Return the bodies of the requests that were not in batches."""
        return [json.loads(body) for (body,) in self._rows("SELECT body FROM live")]

    def _rows(self, query: str) -> list[Any]:
        with closing(sqlite3.connect(self.folder / "server.sqlite")) as database:
            return database.execute(query).fetchall()


class _Unacknowledged(Exception):
    """The client is to get no answer."""


class _Service:
    """What the server does, one request at a time."""

    def __init__(self, folder: Path, answer: Callable[[dict[str, Any]], str], faults: Faults) -> None:
        self.lock = RLock()
        self._answer = answer
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
        match method, path:
            case "POST", ["chat", "completions"]:
                self._database.execute("INSERT INTO live VALUES (?)", (body,))
                return self._completion(json.loads(body))
            case "POST", ["files"]:
                content = _uploaded(body)
                return {**self._file(content), "bytes": len(content), "filename": "batch.jsonl", "purpose": "batch"}
            case "GET", ["files", name, "content"]:
                return self._content(name)
            case "POST", ["batches"]:
                return self._created(json.loads(body))
            case "GET", ["batches"]:
                return self._listed(int(query.get("limit", ["20"])[0]), query.get("after", [""])[0])
            case "GET", ["batches", name]:
                return self._step(self._batch(name))
        raise KeyError("/".join(path))

    def _file(self, content: bytes) -> dict[str, Any]:
        number = self._database.execute("INSERT INTO files (content) VALUES (?)", (content,)).lastrowid
        return {"id": f"file-{number}", "object": "file", "created_at": int(time.time()), "status": "processed"}

    def _content(self, name: str) -> bytes:
        row = self._database.execute("SELECT content FROM files WHERE id = ?", (_number(name),)).fetchone()
        if row is None:
            raise KeyError(name)
        return bytes(row[0])

    def _batch(self, name: str) -> dict[str, Any]:
        row = self._database.execute("SELECT record FROM batches WHERE id = ?", (_number(name),)).fetchone()
        if row is None or _number(name) in self._faults.forgotten:
            raise KeyError(name)
        if _number(name) in self._faults.refused:
            raise ValueError("a bad request")
        found: dict[str, Any] = json.loads(row[0])
        return found

    def _save(self, batch: dict[str, Any]) -> dict[str, Any]:
        record = (json.dumps(batch), _number(batch["id"]))
        self._database.execute("UPDATE batches SET record = ? WHERE id = ?", record)
        return batch

    def _created(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert (asked["endpoint"], asked["completion_window"]) == ("/v1/chat/completions", "24h")
        self._creations += 1
        if self._creations in self._faults.lost:
            raise _Unacknowledged
        number = self._database.execute("INSERT INTO batches (record) VALUES ('')").lastrowid
        lines = len(self._content(asked["input_file_id"]).splitlines())
        batch = self._save(
            {
                **asked,
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

    def _listed(self, limit: int, after: str) -> dict[str, Any]:
        before = _number(after) if after else 1 << 60
        rows = self._database.execute(
            "SELECT record FROM batches WHERE id < ? ORDER BY id DESC LIMIT ?", (before, limit + 1)
        ).fetchall()
        found = [json.loads(record) for (record,) in rows[:limit]]
        ends = {"first_id": found[0]["id"], "last_id": found[-1]["id"]} if found else {}
        return {"object": "list", "data": found, **ends, "has_more": len(rows) > limit}

    def _step(self, batch: dict[str, Any]) -> dict[str, Any]:
        number, faults = _number(batch["id"]), self._faults
        if batch["status"] == "validating":
            problem = self._problem(batch)
            if problem is not None:
                errors = {"object": "list", "data": [{"code": problem, "message": f"refused: {problem}", "line": 1}]}
                return self._save({**batch, "status": "failed", "errors": errors})
            return self._save({**batch, "status": "in_progress"})
        if batch["status"] != "in_progress":
            return batch
        lines = [json.loads(line) for line in self._content(batch["input_file_id"]).splitlines()]
        expires = number in faults.expiring
        done = lines[: len(lines) // 2] if expires else lines
        replies, failures = [], []
        for line in done:
            unpaid = _error(429, "You exceeded your quota.", "insufficient_quota"), "failure"
            response, outcome = unpaid if number in faults.unpaid else self._response(line)
            record = {"id": f"batch_req_{number}", "custom_id": line["custom_id"], "response": response, "error": None}
            (replies if outcome == "reply" else failures).append(record)
            values = (line["custom_id"], number, outcome)
            self._database.execute("INSERT INTO answered VALUES (?, ?, ?)", values)
        expired = {"code": "batch_expired", "message": "This request could not be executed in time."}
        for line in lines[len(done) :]:
            failures.append({"id": "batch_req_0", "custom_id": line["custom_id"], "response": None, "error": expired})
        counts = {"total": len(lines), "completed": len(replies), "failed": len(failures)}
        return self._save(
            {
                **batch,
                "status": "expired" if expires else "completed",
                "request_counts": counts,
                "output_file_id": "file-0" if number in faults.emptied else self._file(_lines(replies))["id"],
                "error_file_id": self._file(_lines(failures))["id"] if failures else None,
            }
        )

    def _problem(self, batch: dict[str, Any]) -> str | None:
        if _number(batch["id"]) in self._faults.rejected:
            return self._faults.code
        lines = [json.loads(line) for line in self._content(batch["input_file_id"]).splitlines()]
        rows = self._database.execute("SELECT record FROM batches").fetchall()
        others = [json.loads(record) for (record,) in rows]
        queued = sum(each["request_counts"]["total"] for each in others if each["status"] == "in_progress")
        if queued + len(lines) > self._faults.enqueued:
            return "token_limit_exceeded"
        if len({line["custom_id"] for line in lines}) < len(lines):
            return "duplicate_custom_id"
        return None if len({line["body"]["model"] for line in lines}) == 1 else "model_mismatch"

    def _response(self, line: dict[str, Any]) -> tuple[dict[str, Any], str]:
        (tries,) = self._database.execute(
            "SELECT count(*) FROM answered WHERE custom_id = ?", (line["custom_id"],)
        ).fetchone()
        luck = int.from_bytes(hashlib.sha256(f"{line['custom_id']} {tries}".encode()).digest()[:4])
        if luck < self._faults.failing * 2**32:
            return _error(500, "The server had an error while processing your request."), "failure"
        try:
            return {"status_code": 200, "request_id": "r", "body": self._completion(line["body"])}, "reply"
        except ValueError as error:
            return _error(400, str(error)), "failure"

    def _completion(self, body: dict[str, Any]) -> dict[str, Any]:
        text = self._answer(body)
        read, written = sum(len(each["content"]) for each in body["messages"]) // 4, len(text) // 4
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
        }


def _error(status: int, message: str, code: str | None = None) -> dict[str, Any]:
    return {"status_code": status, "request_id": "r", "body": {"error": {"message": message, "code": code}}}


def _number(name: str) -> int:
    return int(name.rpartition("-" if name.startswith("file") else "_")[2])


def _lines(records: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def _uploaded(body: bytes) -> bytes:
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
        place = urlsplit(self.path)
        status = 200
        try:
            with self.service.lock:
                given = self.service.handle(method, place.path, parse_qs(place.query), body)
        except _Unacknowledged:
            self.close_connection = True
            return
        except KeyError as error:
            status, given = 404, {"error": {"message": f"no such thing: {error}", "code": None}}
        except ValueError as error:
            status, given = 400, {"error": {"message": str(error), "code": None}}
        content = given if isinstance(given, bytes) else json.dumps(given).encode()
        kind = "application/octet-stream" if isinstance(given, bytes) else "application/json"
        head = f"HTTP/1.1 {status} x\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
        self.wfile.write(head.encode() + content)

    def log_message(self, *_: object) -> None:
        return


def _main(folder: str, port: str, answer: str, faults: str) -> None:
    module, _, name = answer.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in json.loads(faults).items()}
    _Handler.service = _Service(Path(folder), getattr(importlib.import_module(module), name), Faults(**given))
    ThreadingHTTPServer.allow_reuse_address = True
    ThreadingHTTPServer(("127.0.0.1", int(port)), _Handler).serve_forever()


if __name__ == "__main__":
    _main(*sys.argv[1:])
