"""LangSmith receives spans if its variables enable it, and content only if that is enabled as well."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from tests.cli.commands import Commands, pairs, reply
from tests.llm.server import ChatServer
from tests.scripts import screen

CANARIES = (b"add two numbers", b"return a + b", b"canaryreply")


class LangSmith:
    """A fake LangSmith server that accepts and records requests."""

    def __init__(self, server: HTTPServer) -> None:
        self.url = server.url_for("").rstrip("/")
        self.bodies: list[bytes] = []
        flags = {"use_multipart_endpoint": True, "size_limit": 100, "size_limit_bytes": 20_000_000}
        flags |= {"scale_up_qsize_trigger": 1000, "scale_up_nthreads_limit": 16, "scale_down_nempty_trigger": 4}
        server.expect_request("/info").respond_with_json({"version": "1", "batch_ingest_config": flags})
        server.expect_request("/runs/multipart").respond_with_handler(self._record)

    def _record(self, request: Request) -> Response:
        self.bodies.append(request.get_data())
        return Response("{}", 202)

    @property
    def received(self) -> bytes:
        return b"".join(self.bodies)


@pytest.fixture
def langsmith(httpserver: HTTPServer) -> Iterator[LangSmith]:
    return LangSmith(httpserver)


def annotate(agent: Commands, *options: str, command: tuple[str, ...] = ("annotate",), **variables: str) -> str:
    agent.write("p.jsonl", pairs(2))
    keys = {"OPENAI_API_KEY": "sk-canarykey", "LANGSMITH_API_KEY": "lsv2_canary"}
    with ChatServer([reply(screen("match", "canaryreply"))]) as server:
        model_options = ("--model", "m", "--base-url", server.url, "--variant", "ps_fa")
        arguments = ("p.jsonl", *model_options, "-o", "out", "--cache", "c", *options)
        done = agent(*command, *arguments, **{"LANGSMITH_TRACING": "", **keys, **variables})
    assert done.code == 0, done.err
    assert "Traceback" not in done.err
    return done.err


def test_nothing_is_sent_unless_enabled(agent: Commands, langsmith: LangSmith) -> None:
    err = annotate(agent, LANGSMITH_ENDPOINT=langsmith.url)
    assert (langsmith.bodies, "LangSmith" in err) == ([], False)


def test_spans_are_sent_without_content(agent: Commands, langsmith: LangSmith) -> None:
    err = annotate(agent, LANGSMITH_ENDPOINT=langsmith.url, LANGSMITH_TRACING="true")
    assert err.count("-c tracing.content=true") == 1
    for name in (b'"screen"', b'"LangGraph"', b'"Chat"'):
        assert name in langsmith.received
    for canary in (*CANARIES, b"sk-canarykey"):
        assert canary not in langsmith.received


def test_requests_export_sends_spans_without_content(agent: Commands, langsmith: LangSmith) -> None:
    annotate(agent, command=("requests", "export"), LANGSMITH_ENDPOINT=langsmith.url, LANGSMITH_TRACING="true")
    assert b'"screen"' in langsmith.received
    for canary in CANARIES:
        assert canary not in langsmith.received


@pytest.mark.parametrize(
    ("options", "variables"),
    [
        (("-c", "tracing.content=true"), {}),
        ((), {"LANGSMITH_HIDE_INPUTS": "false", "LANGSMITH_HIDE_OUTPUTS": "false"}),
    ],
)
def test_content_is_sent_if_enabled(
    agent: Commands, langsmith: LangSmith, options: tuple[str, ...], variables: dict[str, str]
) -> None:
    err = annotate(agent, *options, LANGSMITH_ENDPOINT=langsmith.url, LANGCHAIN_TRACING_V2="true", **variables)
    assert "tracing.content" not in err
    for canary in CANARIES:
        assert canary in langsmith.received
    assert b"sk-canarykey" not in langsmith.received


def test_silent_server_is_reported_once_and_abandoned(agent: Commands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        err = annotate(agent, LANGSMITH_ENDPOINT=url, LANGSMITH_TRACING="true")
    assert [" 3 s" in line for line in err.splitlines() if "langsmith: " in line] == [True]
    assert "lsv2" not in err
    lines = (agent.folder / "out" / "annotations.jsonl").read_text().splitlines()
    assert [json.loads(line)["label"] for line in lines] == [1, 1]
