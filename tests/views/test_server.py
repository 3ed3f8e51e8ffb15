"""The server of the review page: loopback only, nothing without the token, and no evidence before a commit."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from urllib.parse import quote, urlsplit

import pytest

from agent.runs.store.reviews import read_reviews
from agent.views import server
from agent.views.review_session import LabelSession
from agent.views.server import Gate
from tests.cli.processes import wait_until
from tests.views.review_runs import SECRET, RunningReview, make_report, make_run, serve_review

PATHS = ("/", "/review.js", "/review.css", "/api/session", "/api/pairs/0", "/nothing")
REVIEW = {"label": 1, "reason": "it does", "reviewer": "ann"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    annotations = {f"p{number}": {"label": number % 2, "test": make_report(1, 1)} for number in range(8)}
    return make_run(tmp_path_factory.mktemp("review") / "run", annotations)


@pytest.fixture(scope="module")
def served(run: Path) -> Iterator[RunningReview]:
    with serve_review(run) as served:
        yield served


@pytest.mark.slow
def test_json_output_contains_the_address_and_the_queue(served: RunningReview, run: Path) -> None:
    shown = dict(served.output)
    assert shown.pop("url") == f"http://127.0.0.1:{served.port}/?token={served.token}"
    assert re.findall(r"\d+|decided_by|label", shown.pop("queue")) == ["8", "8", "decided_by", "label", "0"]
    assert shown == {
        "run": str(run),
        "reviews": str(run / "reviews.jsonl"),
        "pairs": 8,
        "reviewed": 0,
        "reviewer": "ann",
        "blind": True,
    }


def test_the_server_listens_on_the_loopback_interface_only(served: RunningReview) -> None:
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ours = {fields[1] for fields in listening if fields[1].endswith(f":{served.port:04X}") and fields[3] == "0A"}
    assert ours == {f"0100007F:{served.port:04X}"}


@pytest.mark.parametrize("path", PATHS)
def test_every_path_rejects_requests_without_the_token_equally(served: RunningReview, path: str) -> None:
    cookies = "", "agent-review-1=x", "agent-review=wrong"
    responses = {
        (status, body) for cookie in cookies for status, _, body in [served.request("GET", path, Cookie=cookie)]
    }
    assert [(status, SECRET.encode() in body) for status, body in responses] == [(403, False)]
    assert served.request("GET", path + "?token=wrong", Cookie="")[0] == 403


def test_the_token_opens_the_page_and_sets_a_cookie_for_its_path_only(served: RunningReview) -> None:
    status, headers, content = served.request("GET", f"/?token={served.token}", Cookie="", page="")
    assert (status, content) == (303, b"")
    there, _, ticket = headers["location"].partition("?token=")
    assert (there, ticket == served.token) == (f"{served.page}/", False)
    assert "set-cookie" not in headers
    status, headers, content = served.request("GET", f"/?token={ticket}", Cookie="")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert headers["set-cookie"] == f"agent-review={served.token}; Path={there}; HttpOnly; SameSite=Strict"
    assert served.token.encode() not in content
    assert served.request("GET", f"/?token={ticket}", Cookie="")[0] == 403


@pytest.mark.parametrize("path", PATHS[1:])
def test_paths_outside_the_page_return_errors(served: RunningReview, path: str) -> None:
    assert served.request("GET", path, page="")[0] == 404
    assert served.request("GET", path, page="/other")[0] == 404
    assert served.request("GET", path, page="", Cookie="")[0] == 403
    assert served.request("GET", f"{path}?token={served.token}", Cookie="")[0] == 403, "only the page accepts a token"
    assert served.request("GET", path, Host="evil.example")[0] == 403, "DNS rebinding"


@pytest.mark.parametrize("origin", ["", "null", "http://evil.example", "http://127.0.0.1:1"])
def test_pages_of_other_sites_cannot_send_reviews(served: RunningReview, run: Path, origin: str) -> None:
    assert served.request("POST", "/api/pairs/0", REVIEW, Origin=origin)[0] == 403
    assert served.request("POST", "/api/reviewer", {"reviewer": "eve"}, Origin=origin)[0] == 403
    assert served.json("/api/session")["reviewer"] == "ann"
    assert read_reviews(run / "reviews.jsonl") == []


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("cookie", [None, ""])
def test_every_response_forbids_caching_and_framing(served: RunningReview, path: str, cookie: str | None) -> None:
    _, headers, _ = served.request("GET", path, **({} if cookie is None else {"Cookie": cookie}))
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-content-type-options"] == "nosniff"
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert (policy["default-src"], policy["frame-ancestors"], policy["form-action"]) == ("'none'",) * 3
    assert (policy["script-src"], policy["connect-src"]) == ("'self'", "'self'")
    assert "server" not in headers


def test_hidden_evidence_is_never_sent_to_the_browser(served: RunningReview) -> None:
    shown = b"".join(served.request("GET", f"/api/pairs/{number}")[2] for number in range(8))
    shown += served.request("GET", "/api/session")[2]
    assert b"query of p" in shown
    assert SECRET.encode() not in shown
    assert b'"p0"' not in shown


def test_invalid_reviews_and_positions_are_rejected(served: RunningReview) -> None:
    for body, kind in ((b"{", ""), (REVIEW, "text/plain"), ({**REVIEW, "reason": "x" * 300_000}, "")):
        headers = {"Content_Type": kind} if kind else {}
        status, _, content = served.request("POST", "/api/pairs/0", body, **headers)
        assert (status, list(json.loads(content))) == (400, ["error"])
    assert served.request("GET", "/api/pairs/8")[0] == 400
    assert served.request("GET", "/api/pairs/-1")[0] == 404
    assert served.request("GET", f"/api/pairs/{'9' * 18}")[0] == 400
    for number in ("9" * 6000, "١", "1.0", "%31%0a"):
        assert served.request("GET", quote(f"/api/pairs/{number}", safe="/%"))[0] == 404
        assert served.request("POST", quote(f"/api/pairs/{number}", safe="/%"), REVIEW)[0] == 404
    assert served.request("GET", "/../../etc/passwd")[0] == 404
    assert served.request("PUT", "/api/pairs/0", REVIEW)[0] == 405


def make_small_run(folder: Path, count: int = 2) -> Path:
    return make_run(folder / "run", {f"p{number}": {"label": 1} for number in range(count)})


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_the_summary_counts_reviews_and_prints_the_resume_command(
    tmp_path: Path, signal_number: signal.Signals
) -> None:
    run = make_small_run(tmp_path)
    with serve_review(run) as served:
        served.json("/api/pairs/0", REVIEW)
        shown = served.stop(signal_number)
        assert served.process.code == 0
    assert re.search(rf"\b1 .*{run}/reviews\.jsonl.*\b1 of 2 .*\bann\b", shown)
    assert f"  agent review {run} --reviewer ann --json\n" in shown
    assert f"  agent score {run}\n" in shown
    assert "Traceback" not in shown
    with serve_review(run) as served:
        assert served.output["reviewed"] == 1
        assert served.json("/api/session")["reviewed"] == [True, False]


def test_the_summary_names_the_last_reviewer_and_the_resume_command(tmp_path: Path) -> None:
    run = make_small_run(tmp_path)
    with serve_review(run) as served:
        served.json("/api/pairs/0", REVIEW)
        assert served.request("POST", "/api/reviewer", {"reviewer": "bob"}, Cookie="")[0] == 403
        assert served.request("POST", "/api/reviewer", {"reviewer": "bob"}, Host="evil.example")[0] == 403
        assert served.json("/api/reviewer", {"reviewer": "bob b"})["reviewer"] == "bob b"
        status, _, content = served.request("POST", "/api/pairs/1", REVIEW)
        assert (status, "bob b" in json.loads(content)["error"]) == (400, True)
        shown = served.stop()
    assert re.search(rf"\b1 .*{run}/reviews\.jsonl.*\b0 of 2 .*\bbob b\b", shown)
    assert f"  agent review {run} --reviewer ann --json --reviewer 'bob b'\n" in shown


@pytest.mark.slow
def test_a_killed_server_loses_no_confirmed_review(tmp_path: Path) -> None:
    run = make_small_run(tmp_path, 6)
    for number in range(6):
        with serve_review(run) as served:
            served.json(f"/api/pairs/{number}", REVIEW)
            os.kill(served.process.pid, signal.SIGKILL)
    assert len(read_reviews(run / "reviews.jsonl")) == 6


@pytest.mark.slow
def test_the_browser_is_opened_on_a_desktop_with_a_single_use_token(commands: Path, tmp_path: Path) -> None:
    run, opened = make_small_run(tmp_path), tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}.new && mv {opened}.new {opened}\nsleep 60\n')
    browser.chmod(0o755)
    terminal, child = os.openpty()
    desktop = {name: value for name, value in os.environ.items() if name != "SSH_CONNECTION"}
    desktop |= {"DISPLAY": ":0", "BROWSER": str(browser)}
    command = [commands / "agent", "review", run]
    process = subprocess.Popen(command, stdout=child, stderr=subprocess.DEVNULL, env=desktop, start_new_session=True)
    try:
        wait_until(opened.exists, "a browser's start")
        output = os.read(terminal, 1000).decode().strip()
        served = RunningReview(process, {"url": opened.read_text()})
        assert (served.port, served.token in output) == (urlsplit(output).port, False)
        assert served.request("GET", f"/?token={served.token}", Cookie="", page="")[0] == 303
        assert served.request("GET", f"/?token={served.token}", Cookie="", page="")[0] == 403
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(terminal)
        os.close(child)


@pytest.mark.slow
def test_the_port_option_is_used_and_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    run = make_small_run(tmp_path)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with serve_review(run, "--port", str(port)) as served:
        assert served.port == port
        with pytest.raises(AssertionError, match=f"port {port}"), serve_review(run, "--port", str(port)):
            pass


HOST = "127.0.0.1:8000"


@pytest.fixture
def gate() -> Gate:
    return Gate()


def make_cookie(gate: Gate) -> str:
    return gate.make_cookie().split(";")[0]


def test_tokens_and_paths_are_unique_and_have_at_least_128_bits() -> None:
    gates = [Gate() for _ in range(100)]
    for secrets in ({gate.token for gate in gates}, {gate.path.strip("/") for gate in gates}):
        assert len(secrets) == 100
        assert all(len(secret) * 6 >= 128 for secret in secrets)


@pytest.mark.parametrize("host", [HOST, "localhost:8000", "[::1]:8000", "localhost", "localhost:9999"])
def test_host_names_of_this_machine_are_accepted_with_any_port(gate: Gate, host: str) -> None:
    assert gate.explain_refusal("GET", {"host": host, "cookie": f'a="b; {make_cookie(gate)}; c'}) is None
    assert gate.explain_refusal("GET", {"host": host}, gate.token) is None
    assert gate.explain_refusal("GET", {"host": host, "cookie": make_cookie(Gate())}) is not None


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.", "127.0.0.1:8000@evil", "0:8000"],
)
def test_other_host_names_are_rejected_even_with_the_token(gate: Gate, host: str) -> None:
    headers = {"host": host, "cookie": make_cookie(gate)}
    assert "localhost" in str(gate.explain_refusal("GET", headers, gate.token))


@pytest.mark.parametrize("value", ["", "agent-review=", "agent-review=wrong", "agent-review", "ä=ö\ud800"])
@pytest.mark.parametrize("token", [None, "", "wrong", "ä\ud800"])
def test_requests_without_the_token_are_rejected(gate: Gate, value: str, token: str | None) -> None:
    assert "token" in str(gate.explain_refusal("GET", {"host": HOST, "cookie": value}, token))


@pytest.mark.parametrize(
    "origin", [None, "null", "http://evil.example", "http://127.0.0.1:9", "https://127.0.0.1:8000"]
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_only_the_page_origin_may_send_reviews(gate: Gate, origin: str | None, method: str) -> None:
    headers = {"host": HOST, "cookie": make_cookie(gate)}
    assert "Origin" in str(gate.explain_refusal(method, headers if origin is None else {**headers, "origin": origin}))
    assert gate.explain_refusal(method, {**headers, "origin": f"http://{HOST}"}) is None


@pytest.mark.parametrize(
    "part",
    [
        b"GET / HTTP/1.1\r\nHost: loc",
        b"POST /%b/api/reviewer HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nCookie: agent-review=t\r\n"
        b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
    ],
    ids=["headers", "body"],
)
def test_a_request_that_is_only_half_sent_is_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, part: bytes
) -> None:
    monkeypatch.setattr(server, "CONNECTION_SECONDS", 0.2)

    async def send() -> None:
        ready, listening, gate = asyncio.Event(), server.listen(), Gate("t")
        serving = asyncio.create_task(
            server.serve(cast(LabelSession, SimpleNamespace(change_reviewer=None)), gate, listening, ready.set)
        )
        await ready.wait()
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(part.replace(b"/%b", gate.path.rstrip("/").encode()))
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        writer.close()
        serving.cancel()
        await serving

    # the browser of other tests has the event loop of the main thread
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, send()).result()
    assert [record for record in caplog.records if record.exc_info] == []
