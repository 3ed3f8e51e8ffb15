"""`agent annotate --engine ray`, and the end of everything it starts: by Ctrl-C, by `kill -9`, with a node."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

from agent.cli import DONE, STOPPED
from tests.cli.commands import Commands, pairs, reply
from tests.cli.processes import alive, descendants, until
from tests.cli.test_langsmith import CANARIES, LangSmith
from tests.cli.unclear import role
from tests.llm.server import Answer, ChatServer, Request, slow
from tests.scripts import label, program, screen

PROGRAM = "import time\n# <candidate>\n\ndef test_add():\n    time.sleep(0.5)\n    assert add(1, 2) == 3\n"
START = 90
"""Seconds for Ray and its workers to start on a busy machine."""


def respond(request: Request) -> Answer:
    """Have every pair tested by a program that takes half a second."""
    replies = {"screen": screen("unclear"), "generate_test": program(PROGRAM), "arbitrate": label(1)}
    return slow(0.2, reply(replies[role(request)]))


def command(file: Path, server: ChatServer, *more: str) -> tuple[str | Path, ...]:
    given = ("--engine", "ray", "-c", "sandbox.pool=1", "--concurrency", "8", "--sandbox", "bwrap", "-o", "run")
    return ("annotate", file, "--model", "m", "--base-url", server.url, "--cache", "cache.sqlite", *given, *more)


def workers() -> list[int]:
    """Return the processes of Ray's workers that this one started, by the name that Ray gives them."""
    titles = ((pid, Path(f"/proc/{pid}/cmdline")) for pid, _ in descendants(os.getpid()))
    return [pid for pid, title in titles if title.exists() and title.read_bytes().startswith(b"ray::Worker")]


def check(run: Path, number: int) -> None:
    """Hold a run to one line of each pair, with the label of one process."""
    lines = [json.loads(line) for line in (run / "annotations.jsonl").read_text().splitlines()]
    assert Counter(line["id"] for line in lines) == Counter(f"p{each}" for each in range(number))
    assert {line["label"] for line in lines} == {1}


def repeated(server: ChatServer) -> int:
    """Return how many requests were made again."""
    return len(server.requests) - len({request.prompt for request in server.requests})


@pytest.mark.long
@pytest.mark.bwrap
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_whatever_ends_the_run_nothing_is_left_and_it_goes_on(agent: Commands, how: signal.Signals) -> None:
    pytest.importorskip("ray")
    file = agent.write("p.jsonl", pairs(24))
    with ChatServer(respond) as server:
        run = command(file, server, "-c", "runner.workers=2")
        process = agent.start(*run)
        until(lambda: len(server.requests) > 30, "sandboxes at work", START)
        children = descendants(process.pid)
        asked = len(server.requests)
        os.kill(process.pid, how)
        stopped = process.wait()
        until(lambda: not alive(children), "the end of all processes", 120)  # Ray's own agents take a minute
        assert stopped.code == (STOPPED if how is signal.SIGINT else -how)
        assert "Traceback" not in stopped.err
        done = agent.start(*run, "--json").wait(200)
    assert (done.code, done.json["pairs"]) == (DONE, 24), done.err
    assert repeated(server) <= 8, f"only what was in flight, of {asked}"
    check(agent.folder / "run", 24)


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head without CPUs and two nodes with one, all on this machine."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield found
    found.shutdown()


@pytest.mark.long
@pytest.mark.bwrap
def test_a_lost_nodes_pairs_are_done_again_by_others(agent: Commands, cluster: Any) -> None:
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    file = agent.write("p.jsonl", pairs(40))
    with ChatServer(respond) as server:
        process = agent.start(*command(file, server, "--address", cluster.address, "--json"))
        until(lambda: len(server.requests) > 40 and len(workers()) == 2, "two workers", START)
        cluster.remove_node(nodes[1], allow_graceful=False)
        done = process.wait(200)
        until(lambda: not workers(), "the end of the workers", 30)
    assert (done.code, done.json["pairs"]) == (DONE, 40), done.err
    assert "was lost" in done.err
    assert repeated(server) <= 8
    check(agent.folder / "run", 40)


@pytest.mark.long
@pytest.mark.bwrap
def test_workers_on_a_cluster_end_with_the_run_that_is_killed(agent: Commands, cluster: Any) -> None:
    cluster.add_node(num_cpus=1)
    file = agent.write("p.jsonl", pairs(24))
    with ChatServer(respond) as server:
        process = agent.start(*command(file, server, "--address", cluster.address))
        until(lambda: len(server.requests) > 20, "sandboxes at work", START)
        children = set[tuple[int, int]]().union(*(descendants(worker) for worker in workers()))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        until(lambda: not workers() and not alive(children), "the end of workers and sandboxes", 60)


@pytest.mark.long
def test_content_is_kept_from_langsmith_where_a_workers_node_switches_it_on(
    agent: Commands, cluster: Any, httpserver: HTTPServer
) -> None:
    langsmith = LangSmith(httpserver)
    variables = {"LANGSMITH_TRACING": "true", "LANGSMITH_ENDPOINT": langsmith.url, "LANGSMITH_API_KEY": "lsv2_canary"}
    cluster.add_node(num_cpus=1, env_vars=variables)
    file = agent.write("p.jsonl", pairs(2))
    with ChatServer([reply(screen("match", "canaryreply"))]) as server:
        run = command(file, server, "--address", cluster.address, "--variant", "ps_fa")
        assert agent.start(*run).wait(START).code == DONE
    assert b'"screen"' in langsmith.received
    assert [canary for canary in CANARIES if canary in langsmith.received] == []
