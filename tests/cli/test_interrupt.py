"""An interrupted or killed run leaves no process, loses no pair and can be resumed."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agent.runs.store.run_view import load_run
from tests.cli.commands import Commands, pairs, read_annotations, reply
from tests.cli.killing import read_stored_numbers
from tests.cli.processes import wait_until
from tests.llm.server import Answer, ChatServer, Request, slow
from tests.scripts import label, screen

KILLS = 10
CONCURRENCY = 4


def count_lines(run: Path) -> int:
    file = run / "annotations.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def check_finished(run: Path, ids: set[str], rounds: int = 1) -> None:
    assert Counter(a["id"] for a in read_annotations(run)) == dict.fromkeys(ids, rounds)
    with load_run(run) as view:
        assert all(view.evidence(pair_id) is not None for pair_id in ids)


def build_command(file: Path, server: ChatServer, *more: str) -> tuple[Any, ...]:
    options = ("--variant", "single_llm", "--model", "m", "--base-url", server.url, "-o", "run", "--concurrency", "2")
    return ("annotate", file, *options, *more)


@pytest.mark.parametrize(("sig", "rounds"), [(signal.SIGINT, 1), (signal.SIGTERM, 1), (signal.SIGINT, 2)])
def test_interrupted_run_prints_how_to_resume_and_resumes(agent: Commands, sig: signal.Signals, rounds: int) -> None:
    file, run = agent.write("p.jsonl", pairs(12 // rounds)), agent.folder / "run"
    with ChatServer(slow(0.1, reply(label(1)))) as server:
        command = build_command(file, server, "--rounds", str(rounds))
        process = agent.start(*command)
        wait_until(lambda: count_lines(run) >= 3, "three annotations")
        stopped = process.stop(sig)
        finished = count_lines(run)
        assert (stopped.code, stopped.out) == (3, "")
        assert 3 <= finished < 12
        unit = "pairs" if rounds == 1 else "annotations"
        assert f"Interrupted.\n{finished} {unit} " in stopped.err
        assert f"\n  agent {' '.join(map(str, command))}\n" in stopped.err
        assert "Traceback" not in stopped.err
        done = agent(*command, "--json")
    assert (done.code, done.json["annotated_now"]) == (0, 12 - finished)
    check_finished(run, {f"p{number}" for number in range(12 // rounds)}, rounds)


@pytest.mark.long
def test_kills_lose_no_pair_and_repeat_no_cached_call(agent: Commands) -> None:
    file, run, cache = agent.write("p.jsonl", pairs(60)), agent.folder / "run", agent.folder / "cache.sqlite"
    rng = random.Random(20)

    def answer(request: Request) -> Answer:
        reason = f"request {request.number}"
        is_screen = '"non_match"' in request.prompt
        return slow(0.02, reply(screen("unclear", reason) if is_screen else label(1, reason)))

    lost = 0
    with ChatServer(answer) as server:
        command = ("annotate", file, "--variant", "ps_fa", "--model", "m", "--base-url", server.url, "-o", "run")
        command = (*command, "--cache", "cache.sqlite", "--concurrency", str(CONCURRENCY))
        for _ in range(KILLS):
            calls_before, stored_before = len(server.requests), read_stored_numbers(cache)
            bodies_stored = {json.dumps(server.requests[number].body) for number in stored_before}
            process = agent.start(*command)
            goal = calls_before + rng.randint(0, 10)
            wait_until(lambda goal=goal: len(server.requests) >= goal, "a request")  # type: ignore[misc]
            time.sleep(rng.uniform(0, 0.1))
            assert process.stop(signal.SIGKILL).code == -signal.SIGKILL
            wait_until(server.has_received_all, "the end of its connections")
            new = server.requests[calls_before:]
            assert not bodies_stored & {json.dumps(request.body) for request in new}
            lost_now = len(new) - len(read_stored_numbers(cache) - stored_before)
            assert lost_now <= CONCURRENCY
            lost += lost_now
        done = agent(*command, "--json")
        assert done.code == 0
        assert len(server.requests) == 2 * 60 + lost
    check_finished(run, {f"p{number}" for number in range(60)})
