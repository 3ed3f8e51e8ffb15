"""`agent annotate --engine ray` ends all its processes after Ctrl-C, `kill -9` and the loss of a node."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

from agent.cli.exit_codes import DONE, STOPPED
from tests.cli.commands import Commands, pairs, reply
from tests.cli.processes import find_alive, find_descendants, wait_until
from tests.cli.test_langsmith import CANARIES, LangSmith
from tests.cli.unclear import find_role
from tests.llm.server import Answer, ChatServer, Request, slow
from tests.scripts import label, program, screen

PROGRAM = "import time\n# <candidate>\n\ndef test_add():\n    time.sleep(0.5)\n    assert add(1, 2) == 3\n"
START = 90
"""Seconds for Ray and its workers to start on a busy machine."""


def respond(request: Request) -> Answer:
    """Answer so that every pair is tested by a program that takes half a second."""
    replies = {"screen": screen("unclear"), "generate_test": program(PROGRAM), "arbitrate": label(1)}
    return slow(0.2, reply(replies[find_role(request)]))


def build_command(file: Path, server: ChatServer, *more: str) -> tuple[str | Path, ...]:
    options = ("--engine", "ray", "-c", "sandbox.pool=1", "--concurrency", "8", "--sandbox", "bwrap", "-o", "run")
    return ("annotate", file, "--model", "m", "--base-url", server.url, "--cache", "cache.sqlite", *options, *more)


def find_workers() -> list[int]:
    """Return the Ray workers that this process started, found by their process names."""
    titles = ((pid, Path(f"/proc/{pid}/cmdline")) for pid, _ in find_descendants(os.getpid()))
    return [pid for pid, title in titles if title.exists() and title.read_bytes().startswith(b"ray::Worker")]


def check_run(run: Path, number: int) -> None:
    """Check that a run has one annotation per pair, all with label 1."""
    lines = [json.loads(line) for line in (run / "annotations.jsonl").read_text().splitlines()]
    assert Counter(line["id"] for line in lines) == Counter(f"p{number}" for number in range(number))
    assert {line["label"] for line in lines} == {1}


def count_repeated(server: ChatServer) -> int:
    """Return the number of repeated requests."""
    return len(server.requests) - len({request.prompt for request in server.requests})


@pytest.mark.long
@pytest.mark.bwrap
@pytest.mark.parametrize("stop_signal", [signal.SIGINT, signal.SIGKILL])
def test_stopped_run_leaves_no_process_and_resumes(agent: Commands, stop_signal: signal.Signals) -> None:
    pytest.importorskip("ray")
    file = agent.write("p.jsonl", pairs(24))
    with ChatServer(respond) as server:
        run = build_command(file, server, "-c", "runner.workers=2")
        process = agent.start(*run)
        wait_until(lambda: len(server.requests) > 30, "running sandboxes", START)
        children = find_descendants(process.pid)
        calls_before = len(server.requests)
        stopped = process.stop(stop_signal)
        wait_until(lambda: not find_alive(children), "the end of all processes", 120)  # the agents of Ray take a minute
        assert stopped.code == (STOPPED if stop_signal is signal.SIGINT else -stop_signal)
        assert "Traceback" not in stopped.err
        done = agent.start(*run, "--json").wait(200)
    assert (done.code, done.json["pairs"]) == (DONE, 24), done.err
    assert count_repeated(server) <= 8, f"more repeats than calls in flight, after {calls_before} calls"
    check_run(agent.folder / "run", 24)


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A Ray cluster on this machine, whose head has no CPUs."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield cluster
    cluster.shutdown()


@pytest.mark.long
@pytest.mark.bwrap
def test_pairs_of_a_lost_node_are_annotated_by_others(agent: Commands, cluster: Any) -> None:
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    file = agent.write("p.jsonl", pairs(40))
    with ChatServer(respond) as server:
        process = agent.start(*build_command(file, server, "--address", cluster.address, "--json"))
        wait_until(lambda: len(server.requests) > 40 and len(find_workers()) == 2, "two workers", START)
        cluster.remove_node(nodes[1], allow_graceful=False)
        done = process.wait(200)
        wait_until(lambda: not find_workers(), "the end of the workers", 30)
    assert (done.code, done.json["pairs"]) == (DONE, 40), done.err
    assert "was lost" in done.err
    assert count_repeated(server) <= 8
    check_run(agent.folder / "run", 40)


@pytest.mark.long
@pytest.mark.bwrap
def test_workers_on_a_cluster_end_with_a_killed_run(agent: Commands, cluster: Any) -> None:
    cluster.add_node(num_cpus=1)
    file = agent.write("p.jsonl", pairs(24))
    with ChatServer(respond) as server:
        process = agent.start(*build_command(file, server, "--address", cluster.address))
        wait_until(lambda: len(server.requests) > 20, "running sandboxes", START)
        children = set[tuple[int, int]]().union(*(find_descendants(worker) for worker in find_workers()))
        process.stop(signal.SIGKILL)
        wait_until(lambda: not find_workers() and not find_alive(children), "the end of workers and sandboxes", 60)


@pytest.mark.long
def test_langsmith_enabled_on_a_worker_node_receives_no_content(
    agent: Commands, cluster: Any, httpserver: HTTPServer
) -> None:
    langsmith = LangSmith(httpserver)
    variables = {"LANGSMITH_TRACING": "true", "LANGSMITH_ENDPOINT": langsmith.url, "LANGSMITH_API_KEY": "lsv2_canary"}
    cluster.add_node(num_cpus=1, env_vars=variables)
    file = agent.write("p.jsonl", pairs(2))
    with ChatServer([reply(screen("match", "canaryreply"))]) as server:
        run = build_command(file, server, "--address", cluster.address, "--variant", "ps_fa")
        assert agent.start(*run).wait(START).code == DONE
    assert b'"screen"' in langsmith.received
    assert [canary for canary in CANARIES if canary in langsmith.received] == []


@pytest.mark.long
@pytest.mark.bwrap
def test_workers_read_files_but_import_no_modules_from_the_working_folder(agent: Commands) -> None:
    pytest.importorskip("ray")
    file, ran = agent.write("p.jsonl", pairs(2)), agent.folder / "ran"
    agent.write("zoneinfo.py", f"open({str(ran)!r}, 'w')\nraise SystemExit\n")
    files = ("--requirements", agent.write("r.txt", ""), "-o", "run")
    options = ("--model", "heuristic", "--engine", "ray", "-c", "runner.workers=1", "--sandbox", "bwrap")
    done = agent.start("annotate", file, *options, *files).wait(200)
    assert done.code == DONE, done.err
    assert not ran.exists()


@pytest.mark.long
def test_ctrl_c_ends_the_attempt_to_connect_to_a_cluster(agent: Commands) -> None:
    pytest.importorskip("ray")
    file = agent.write("p.jsonl", pairs(1))
    with socket.create_server(("", 0)) as silent_server:
        silent_server.settimeout(START)
        address = f"127.0.0.1:{silent_server.getsockname()[1]}"
        options = ("--model", "heuristic", "--engine", "ray", "--address", address, "-o", "run")
        process = agent.start("annotate", file, *options, http_proxy="", https_proxy="")
        connection, _ = silent_server.accept()
        stopped = process.stop()
        connection.close()
    assert stopped.code == STOPPED, stopped.err
    assert "Traceback" not in stopped.err
