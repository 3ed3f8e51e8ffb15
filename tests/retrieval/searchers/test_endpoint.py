"""`openai:MODEL` against a real HTTP server that misbehaves as told."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.cli import STOPPED
from agent.errors import AccountError, ConfigError, RunStopped
from agent.retrieval.searchers.base import SearchResult
from agent.retrieval.searchers.dense import DenseSearcher
from agent.retrieval.searchers.recipes import EmbedderOptions
from agent.retrieval.searchers.registry import make_searcher
from tests.cli.commands import environment
from tests.cli.processes import until
from tests.llm.server import Answer, ChatServer, Request
from tests.retrieval.pooled import write_benchmark

CODES = [f"def add_{n}(x):\n    return x + {n}\n" + "    # long\n" * n for n in range(150)]


def vector_of(text: str) -> list[float]:
    """A vector of 8 numbers that depends on the text alone."""
    return [byte / 100 - 1 for byte in hashlib.sha256(text.encode()).digest()[:8]]


def gives(request: Request) -> Answer:
    """What a server answers; in reverse order, as the protocol allows."""
    texts = request.body["input"]
    data = [{"object": "embedding", "index": n, "embedding": vector_of(text)} for n, text in enumerate(texts)]
    body = {"object": "list", "data": data[::-1], "usage": {"prompt_tokens": len(texts), "total_tokens": len(texts)}}
    return Answer(json.dumps(body).encode())


def refuses(status: int, message: str = "no", **headers: str) -> Answer:
    return Answer(json.dumps({"error": {"message": message}}).encode(), status, headers)


@pytest.fixture
def searcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., DenseSearcher]:
    """Makes a searcher that hardly waits for the next attempt, and keeps its vectors in the test's folder."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)

    def made(server: ChatServer, **options: Any) -> DenseSearcher:
        found = make_searcher("openai:m", EmbedderOptions(embeddings=tmp_path, base_url=server.url, **options))
        assert isinstance(found, DenseSearcher)
        return found

    return made


def silent(_what: str, _done: int, _all: int) -> None:
    return


def search(searcher: DenseSearcher, query: str = "add", depth: int = 5) -> SearchResult:
    searcher.index(CODES, silent)
    [found] = searcher.search([query], depth, silent)
    return found


def test_codes_are_ranked_by_the_cosine_of_the_vectors_that_the_server_gives(searcher: Any) -> None:
    with ChatServer(gives) as server:
        found = search(searcher(server))
    codes = np.array([vector_of(code) for code in CODES])
    codes /= np.linalg.norm(codes, axis=1, keepdims=True)
    query = np.array(vector_of("add"))
    cosines = codes @ (query / np.linalg.norm(query))
    assert found.positions.tolist() == np.argsort(-cosines)[:5].tolist()
    assert found.scores == pytest.approx(np.sort(cosines)[::-1][:5], abs=1e-6)


def test_failures_that_may_pass_are_asked_again(searcher: Any) -> None:
    failures = [refuses(429, **{"retry-after-ms": "1"}), refuses(503), Answer(ending="hang_up")]
    with ChatServer(lambda request: failures.pop() if failures else gives(request)) as server:
        assert len(search(searcher(server)).positions) == 5
    assert not failures
    assert {text for request in server.requests for text in request.body["input"]} == {*CODES, "add"}


def test_a_key_that_is_refused_ends_the_run_and_is_not_shown(searcher: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with (
        ChatServer([refuses(401, "bad key sk-secret")]) as server,
        pytest.raises(AccountError, match=r"HTTP 401: bad key \*\*\*. Check the key"),
    ):
        search(searcher(server))
    assert server.requests[0].headers["authorization"] == "Bearer sk-secret"


def test_a_server_elsewhere_needs_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match=r"'m' at https://api\.example\.org/v1"):
        make_searcher("openai:m", EmbedderOptions(embeddings=tmp_path, base_url="https://api.example.org/v1"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:1], "without embeddings"),
        (lambda data: data[:1] * len(data), "without embeddings"),
        (lambda data: [{**each, "embedding": [None, 1.0]} for each in data], "NaN"),
        (lambda data: [{**each, "embedding": []} for each in data], "vectors of 0 dimensions"),
        (
            lambda data: [{**each, "embedding": [1.0] * each["index"]} for each in data],
            "something else than a vector of each",
        ),
        (lambda data: [{**each, "embedding": [10**401]} for each in data], "something else than a vector of each"),
        (lambda data: [{**each, "index": []} for each in data], "without embeddings"),
        (lambda data: "".join(map(str, data)), r"without embeddings \(out of memory\)"),
    ],
)
def test_an_answer_that_is_no_vector_for_each_text_is_an_error(searcher: Any, change: Any, message: str) -> None:
    def respond(request: Request) -> Answer:
        data = json.loads(gives(request).body)["data"]
        return Answer(json.dumps({"data": change(data), "error": {"message": "out of memory"}}).encode())

    with ChatServer(respond) as server, pytest.raises(RunStopped, match=message):
        search(searcher(server))


def test_texts_that_the_server_finds_too_long_are_cut_until_it_takes_them_and_counted(searcher: Any) -> None:
    def respond(request: Request) -> Answer:
        longest = max(map(len, request.body["input"]))
        return gives(request) if longest < 1_000 else refuses(400, "maximum context length is 8192 tokens")

    with ChatServer(respond) as server:
        made = searcher(server)
        search(made)
    too_long = sum(len(code) >= 1_000 for code in CODES)
    assert too_long
    assert made.notes == (
        f"{too_long} of 150 codes are longer than the model takes, and were cut",
        "the server counted 150 tokens of codes",
        "the server counted 1 token of queries",
    )


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (422, "batch size 64 > maximum allowed batch size 32"),
        (413, "Payload Too Large"),
        (400, "Requested 400000 tokens, max 300000 tokens per request"),
    ],
)
def test_texts_that_are_refused_together_are_asked_for_by_halves(searcher: Any, status: int, message: str) -> None:
    def respond(request: Request) -> Answer:
        return gives(request) if len(request.body["input"]) <= 3 else refuses(status, message)

    with ChatServer(respond) as server:
        made = searcher(server)
        found = search(made)
    with ChatServer(gives) as other:
        whole = search(searcher(other))
    assert (found.positions.tolist(), found.scores.tolist()) == (whole.positions.tolist(), whole.scores.tolist())
    assert made.notes[0] == "the server counted 150 tokens of codes"


def test_a_text_with_more_tokens_than_the_server_takes_is_cut_among_others(searcher: Any) -> None:
    def respond(request: Request) -> Answer:
        longest = max(map(len, request.body["input"]))
        fits = longest < 1_000
        return gives(request) if fits else refuses(413, "`inputs` must have less than 512 tokens. Given: 1000")

    with ChatServer(respond) as server:
        made = searcher(server)
        search(made)
    assert "are longer than the model takes, and were cut" in made.notes[0]


def test_a_refusal_of_every_text_ends_the_run_with_the_servers_words(searcher: Any) -> None:
    with (
        ChatServer(refuses(400, "encoding_format is not supported")) as server,
        pytest.raises(RunStopped, match="HTTP 400: encoding_format is not supported"),
    ):
        search(searcher(server))
    assert len(server.requests) < 40


@pytest.mark.slow
def test_ctrl_c_ends_the_process_though_the_server_does_not_answer(commands: Path, tmp_path: Path) -> None:
    write_benchmark(tmp_path)
    command = ["retrieval", "run", "queries.jsonl", "--codes", "codes.jsonl", "-o", "r", "--searcher", "openai:m"]
    with (
        ChatServer(Answer(wait=300)) as server,
        subprocess.Popen(
            [commands / "agent", *command, "--base-url", server.url],
            cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process,
    ):  # fmt: skip
        until(lambda: bool(server.requests), "a request")
        os.kill(process.pid, signal.SIGINT)
        try:
            _, said = process.communicate(timeout=30)  # a request may take 120 s
        finally:
            process.kill()
    assert (process.returncode, "Interrupted." in said, "Traceback" in said) == (STOPPED, True, False)


@pytest.mark.parametrize(
    ("model", "options", "expected"),
    [
        ("intfloat/e5-base-v2", {}, {"query: add", "passage: def f(): pass"}),
        ("intfloat/e5-base-v2", {"query_prefix": ""}, {"add", "passage: def f(): pass"}),
        ("text-embedding-3-large", {}, {"add", "def f(): pass"}),
        ("mine", {"code_prefix": "code: "}, {"add", "code: def f(): pass"}),
    ],
)
def test_texts_get_the_prefixes_of_the_family_or_those_that_are_given(
    tmp_path: Path, model: str, options: Any, expected: set[str]
) -> None:
    with ChatServer(gives) as server:
        made = make_searcher(f"openai:{model}", EmbedderOptions(embeddings=tmp_path, base_url=server.url, **options))
        made.index(["def f(): pass"], silent)
        list(made.search(["add"], 1, silent))
    assert {text for request in server.requests for text in request.body["input"]} == expected
