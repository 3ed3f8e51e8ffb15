"""`openai:MODEL` against a local HTTP server that simulates failures."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.cli.exit_codes import STOPPED
from agent.errors import AccountError, ConfigError, RunStopped
from agent.retrieval.searchers.base import SearchResult
from agent.retrieval.searchers.dense import DenseSearcher
from agent.retrieval.searchers.presets import EmbedderOptions
from agent.retrieval.searchers.registry import make_searcher
from tests.cli.commands import Commands
from tests.cli.processes import wait_until
from tests.llm.server import Answer, ChatServer, Request, compressed_bomb, endless
from tests.retrieval.pooled import write_benchmark
from tests.retrieval.searchers.test_dense import silent

CODES = [f"def add_{n}(x):\n    return x + {n}\n" + "    # long\n" * n for n in range(150)]


def hash_vector(text: str) -> list[float]:
    """Return a vector of 8 numbers derived from the text."""
    return [byte / 100 - 1 for byte in hashlib.sha256(text.encode()).digest()[:8]]


def answer_vectors(request: Request) -> Answer:
    """Respond with vectors in reverse order, as the protocol allows."""
    texts = request.body["input"]
    data = [{"object": "embedding", "index": n, "embedding": hash_vector(text)} for n, text in enumerate(texts)]
    body = {"object": "list", "data": data[::-1], "usage": {"prompt_tokens": len(texts), "total_tokens": len(texts)}}
    return Answer(json.dumps(body).encode())


def refuse(status: int, message: str = "no", **headers: str) -> Answer:
    return Answer(json.dumps({"error": {"message": message}}).encode(), status, headers)


@pytest.fixture
def searcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., DenseSearcher]:
    """Return a factory of searchers with short retry delays and vectors in the test's folder."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)

    def make(server: ChatServer, **options: Any) -> DenseSearcher:
        result = make_searcher("openai:m", EmbedderOptions(embeddings=tmp_path, base_url=server.url, **options))
        assert isinstance(result, DenseSearcher)
        return result

    return make


def search(searcher: DenseSearcher, query: str = "add", depth: int = 5) -> SearchResult:
    searcher.index(CODES, silent)
    [result] = searcher.search([query], depth, silent)
    return result


def test_snippets_are_ranked_by_cosine_of_the_servers_vectors(searcher: Any) -> None:
    with ChatServer(answer_vectors) as server:
        result = search(searcher(server))
    codes = np.array([hash_vector(code) for code in CODES])
    codes /= np.linalg.norm(codes, axis=1, keepdims=True)
    query = np.array(hash_vector("add"))
    cosines = codes @ (query / np.linalg.norm(query))
    assert result.positions.tolist() == np.argsort(-cosines)[:5].tolist()
    assert result.scores == pytest.approx(np.sort(cosines)[::-1][:5], abs=1e-6)


def test_transient_errors_are_retried(searcher: Any) -> None:
    failures = [refuse(429, **{"retry-after-ms": "1"}), refuse(503), Answer(ending="hang_up")]
    with ChatServer(lambda request: failures.pop() if failures else answer_vectors(request)) as server:
        assert len(search(searcher(server)).positions) == 5
    assert not failures
    assert {text for request in server.requests for text in request.body["input"]} == {*CODES, "add"}


def test_a_rejected_key_stops_the_run_and_is_redacted(searcher: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with (
        ChatServer([refuse(401, "bad key sk-secret")]) as server,
        pytest.raises(AccountError, match=r"401.*\*\*\*"),
    ):
        search(searcher(server))
    assert server.requests[0].headers["authorization"] == "Bearer sk-secret"


def test_a_redirect_stops_the_run_and_sends_nothing_to_its_target(searcher: Any) -> None:
    with (
        ChatServer(answer_vectors) as target,
        ChatServer(Answer(status=307, headers={"Location": target.url})) as server,
    ):
        with pytest.raises(AccountError, match=target.url):
            search(searcher(server))
        assert target.requests == []


@pytest.mark.parametrize("answer", [endless(), endless(503), compressed_bomb()])
def test_a_response_of_unlimited_size_stops_the_run(searcher: Any, answer: Answer) -> None:
    with ChatServer(answer) as server, pytest.raises(RunStopped):
        search(searcher(server))
    texts = [text for request in server.requests for text in request.body["input"]]
    assert len(texts) == len(set(texts))  # no request was sent again in halves


def test_a_remote_server_needs_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match=r"'m'.*https://api\.example\.org/v1"):
        make_searcher("openai:m", EmbedderOptions(embeddings=tmp_path, base_url="https://api.example.org/v1"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:1], "embeddings"),
        (lambda data: data[:1] * len(data), "embeddings"),
        (lambda data: [{**item, "embedding": [None, 1.0]} for item in data], "NaN"),
        (lambda data: [{**item, "embedding": []} for item in data], r"\b0 dimensions"),
        (
            lambda data: [{**item, "embedding": [1.0] * item["index"]} for item in data],
            "one vector per text",
        ),
        (lambda data: [{**item, "embedding": [10**401]} for item in data], "one vector per text"),
        (lambda data: [{**item, "index": []} for item in data], "embeddings"),
        (lambda data: "".join(map(str, data)), r"\(out of memory\)"),
    ],
)
def test_a_response_without_one_vector_per_text_stops_the_run(searcher: Any, change: Any, message: str) -> None:
    def respond(request: Request) -> Answer:
        data = json.loads(answer_vectors(request).body)["data"]
        return Answer(json.dumps({"data": change(data), "error": {"message": "out of memory"}}).encode())

    with ChatServer(respond) as server, pytest.raises(RunStopped, match=message):
        search(searcher(server))


def test_texts_beyond_the_servers_limit_are_truncated_and_counted(searcher: Any) -> None:
    def respond(request: Request) -> Answer:
        longest = max(map(len, request.body["input"]))
        return answer_vectors(request) if longest < 1_000 else refuse(400, "maximum context length is 8192 tokens")

    with ChatServer(respond) as server:
        dense = searcher(server)
        search(dense)
    too_long = sum(len(code) >= 1_000 for code in CODES)
    assert too_long
    truncated, code_tokens, query_tokens = dense.notes
    assert truncated.startswith(f"{too_long} of 150 snippets")
    assert re.search(r"\b150 tokens\b.*\bsnippets\b", code_tokens)
    assert re.search(r"\b1 token\b.*\bqueries\b", query_tokens)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (422, "batch size 64 > maximum allowed batch size 32"),
        (413, "Payload Too Large"),
        (400, "Requested 400000 tokens, max 300000 tokens per request"),
    ],
)
def test_rejected_batches_are_split_in_half(searcher: Any, status: int, message: str) -> None:
    def respond(request: Request) -> Answer:
        return answer_vectors(request) if len(request.body["input"]) <= 3 else refuse(status, message)

    with ChatServer(respond) as server:
        dense = searcher(server)
        result = search(dense)
    with ChatServer(answer_vectors) as other:
        reference = search(searcher(other))
    assert result.positions.tolist() == reference.positions.tolist()
    assert result.scores.tolist() == reference.scores.tolist()
    assert re.search(r"\b150 tokens\b.*\bsnippets\b", dense.notes[0])


def test_a_text_beyond_the_token_limit_is_truncated_among_others(searcher: Any) -> None:
    def respond(request: Request) -> Answer:
        longest = max(map(len, request.body["input"]))
        fits = longest < 1_000
        return answer_vectors(request) if fits else refuse(413, "`inputs` must have less than 512 tokens. Given: 1000")

    with ChatServer(respond) as server:
        dense = searcher(server)
        search(dense)
    assert " of 150 snippets " in dense.notes[0]


def test_a_rejection_of_every_text_stops_the_run_with_the_servers_message(searcher: Any) -> None:
    with (
        ChatServer(refuse(400, "encoding_format is not supported")) as server,
        pytest.raises(RunStopped, match=r"400.*encoding_format"),
    ):
        search(searcher(server))
    assert len(server.requests) < 40


@pytest.mark.slow
@pytest.mark.usefixtures("commands")
def test_ctrl_c_ends_the_command_while_the_server_does_not_respond(tmp_path: Path) -> None:
    write_benchmark(tmp_path)
    command = ("retrieval", "run", "queries.jsonl", "--codes", "codes.jsonl", "-o", "r", "--searcher", "openai:m")
    with ChatServer(Answer(wait=300)) as server:
        running = Commands(tmp_path).start(*command, "--base-url", server.url)
        wait_until(lambda: bool(server.requests), "a request")
        result = running.stop(seconds=30)  # a request may take 120 s
    assert (result.code, "Interrupted." in result.err, "Traceback" in result.err) == (STOPPED, True, False)


@pytest.mark.parametrize(
    ("model", "options", "expected"),
    [
        ("intfloat/e5-base-v2", {}, {"query: add", "passage: def f(): pass"}),
        ("intfloat/e5-base-v2", {"query_prefix": ""}, {"add", "passage: def f(): pass"}),
        ("text-embedding-3-large", {}, {"add", "def f(): pass"}),
        ("mine", {"code_prefix": "code: "}, {"add", "code: def f(): pass"}),
    ],
)
def test_texts_get_the_prefixes_of_the_family_or_the_options(
    tmp_path: Path, model: str, options: Any, expected: set[str]
) -> None:
    with ChatServer(answer_vectors) as server:
        dense = make_searcher(f"openai:{model}", EmbedderOptions(embeddings=tmp_path, base_url=server.url, **options))
        dense.index(["def f(): pass"], silent)
        list(dense.search(["add"], 1, silent))
    assert {text for request in server.requests for text in request.body["input"]} == expected
