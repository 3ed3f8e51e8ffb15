"""Annotates pairs while its processes are killed repeatedly, and checks the final run."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sqlite3
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.cli.commands import ADD, CommandResult, Commands, Running, read_annotations, reply
from tests.cli.processes import Process, find_alive, find_descendants, wait_until
from tests.cli.unclear import find_role
from tests.llm.server import Answer, ChatServer, Request, slow
from tests.sandbox.leftovers import reap
from tests.scripts import label, program, screen

CONCURRENCY = 12
KILLS_ON_RAY = int(os.environ.get("AGENT_TEST_KILLS", "8"))
"""Every second kill restarts Ray; a hundred kills take an hour."""
_PATIENCE = 180.0
Kill = Callable[[int, random.Random], bool]
"""Kills a part of the run whose driver has this process id. Returns false if there was no such part."""


def pairs(count: int) -> list[dict[str, str]]:
    """Return pairs p0, p1, …, six per query."""
    return [{"id": f"p{n}", "query": f"add two numbers, way {n // 6}", "code": f"{ADD}# {n}\n"} for n in range(count)]


def compute_labels(count: int) -> dict[str, int]:
    """Return the label of each pair."""
    return {f"p{number}": number // 3 % 2 if number % 3 == 0 else 1 for number in range(count)}


def respond(request: Request) -> Answer:
    """Answer that every third pair is unclear. Each reply contains the number of its request."""
    match = re.search(r"# (\d+)\n", request.prompt)
    assert match is not None
    number, reason = int(match[1]), f"request {request.number}"
    verdict = label(number // 3 % 2, reason)
    request_role = find_role(request)
    if request_role == "screen":
        verdict = screen("unclear" if number % 3 == 0 else "match", reason)
    elif request_role == "generate_test":
        verdict = program(f"# {reason}\n# <candidate>\n\n\ndef test_add():\n    assert add(1, 2) == {3 + number % 2}\n")
    return slow(0.02, reply(verdict))


def kill_driver(pid: int, _rng: random.Random) -> bool:
    """Kill the command."""
    os.kill(pid, signal.SIGKILL)
    return True


def kill_runner(pid: int, rng: random.Random) -> bool:
    """Kill the first process in one of the bubblewrap sandboxes."""
    children = [child for child, _ in find_descendants(pid)]
    return kill_one([pid for pid in children if _read_name(pid) != "bwrap" == _read_name(_find_parent(pid))], rng)


def kill_worker(pid: int, rng: random.Random) -> bool:
    """Kill one of the Ray workers."""
    return kill_one([pid for pid, _ in find_descendants(pid) if _read_name(pid).startswith("ray::Worker")], rng)


def kill_raylet(pid: int, rng: random.Random) -> bool:
    """Kill the raylet of this machine."""
    return kill_one([child for child, _ in find_descendants(pid) if _read_name(child) == "raylet"], rng)


def kill_one(pids: list[int], rng: random.Random) -> bool:
    """Kill one of these processes."""
    try:
        os.kill(rng.choice(sorted(pids)), signal.SIGKILL)
    except (IndexError, ProcessLookupError):  # there is none, or it has just ended
        return False
    return True


def _read_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _find_parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


class Killing:
    """A run of `count` pairs. `command` has its arguments, and `killed` counts the kills.

    `processes_seen` are the processes of the run just before each kill.
    """

    def __init__(self, agent: Commands, server: ChatServer, count: int, *options: str, seed: int = 20) -> None:
        file = agent.write("p.jsonl", pairs(count))
        self.agent, self.server, self.count = agent, server, count
        self.rng = random.Random(seed)
        self.command = ("annotate", file, "--model", "m", "--base-url", server.url, "-o", "run", "--json", *options)
        self.command = (*self.command, "--cache", "cache.sqlite", "--concurrency", str(CONCURRENCY))
        self.killed: Counter[str] = Counter()
        self.ended_runs = 0
        self.repeated = 0
        self.processes_seen: set[Process] = set()
        self.process: Running | None = None

    def kill(self, kinds: Mapping[str, Kill], times: int) -> None:
        """Kill `times` times at random moments, each kind in turn. Restart a run that ends."""
        requests = self.count * 5 // 3  # each pair is screened; a third of them also need a program and an arbiter
        names = list(kinds)
        for number in range(times):
            name = names[number % len(names)]
            remaining = requests - len(self.server.requests)
            self._wait_for_requests(self.rng.randint(0, max(0, remaining) // (times - number)))
            time.sleep(self.rng.uniform(0, 0.05))
            self.killed[name] += 1
            wait_until(lambda name=name: self._try_to_kill(kinds[name]), f"a {name} to kill", _PATIENCE)  # type: ignore[misc]

    def _try_to_kill(self, kill: Kill) -> bool:
        process = self._get_process()  # restarts a run that ended meanwhile
        self.processes_seen |= find_descendants(process.pid)
        if not kill(process.pid, self.rng):
            return False
        if kill is kill_driver:
            assert process.wait().code == -signal.SIGKILL
            self.process = None
            if "ray" not in self.command:  # two agents of Ray take a minute, so the test waits for them once at the end
                wait_until(lambda: not find_alive(self.processes_seen), "the end of all its processes", 60)
        return True

    def _get_process(self) -> Running:
        """Return the running command, after restarting it if a kill ended it."""
        if self.process is not None and self.process.has_ended():
            self._check_killed(self.process.wait())
        if self.process is None:
            reap()
            self.process = self.agent.start(*self.command)
        return self.process

    def _check_killed(self, result: CommandResult) -> None:
        """Check that a command ended because of a kill, such as of the sandbox at its start."""
        self.process = None
        self.ended_runs += 1
        assert result.code in (2, 3), result
        assert "Traceback" not in result.err
        assert self.ended_runs <= self.killed.total() - self.killed["driver"], result

    def _wait_for_requests(self, requests: int) -> None:
        """Wait until the run has sent `requests` more requests."""
        goal = len(self.server.requests) + requests
        try:
            wait_until(lambda: bool(self._get_process()) and len(self.server.requests) >= goal, "requests", _PATIENCE)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self._get_process().err.read_text()}") from error

    def finish(self) -> None:
        """Wait until the run ends, and check that its results are those of an undisturbed run."""
        result = self._get_process().wait(300)
        while result.code > 1:
            self._check_killed(result)
            result = self._get_process().wait(300)
        assert (result.code, result.json["errors"]) == (0, {}), result.err
        wait_until(self.server.has_received_all, "the end of its connections")
        run = self.agent.folder / "run"
        rows = read_annotations(run)
        assert Counter(row["id"] for row in rows) == dict.fromkeys(compute_labels(self.count), 1)
        labels = [json.loads(line) for line in (run / "labels.jsonl").read_text().splitlines()]
        assert {row["id"]: row["label"] for row in labels} == compute_labels(self.count)
        assert self.agent("runs", "verify", "run", "--json").json["runs"][0]["problems"] == []
        self._check_paid()

    def _check_paid(self) -> None:
        """Check that no request with a cached reply was sent again."""
        last: dict[str, int] = {}
        for request in self.server.requests:
            last[json.dumps(request.body)] = request.number
        stored_numbers = read_stored_numbers(self.agent.folder / "cache.sqlite")
        bodies = {json.dumps(self.server.requests[number].body): number for number in stored_numbers}
        assert len(bodies) == len(stored_numbers)
        assert {body: last[body] for body in bodies} == bodies
        self.repeated = len(self.server.requests) - len(stored_numbers)
        # only calls in flight during one of these kills are lost
        assert self.repeated <= CONCURRENCY * sum(self.killed[name] for name in ("driver", "worker", "raylet"))


def read_stored_numbers(cache: Path) -> set[int]:
    """Return the numbers of the requests whose replies are in the cache."""
    if not cache.exists():
        return set()
    with sqlite3.connect(cache) as connection:
        rows = connection.execute("SELECT reply FROM replies").fetchall()
    connection.close()
    texts = [json.loads(zlib.decompress(row[0]))["text"] for row in rows]
    return {int(match[1]) for text in texts if (match := re.search(r"request (\d+)", text))}
