"""Annotates pairs while something of it is killed again and again, and says what must be so in the end."""

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

from tests.cli.commands import ADD, Commands, Ended, Running, annotations, reply
from tests.cli.processes import Process, alive, descendants, until
from tests.cli.unclear import role
from tests.llm.server import Answer, ChatServer, Request, slow
from tests.sandbox.leftovers import reap
from tests.scripts import label, program, screen

AT_ONCE = 12
KILLS_ON_RAY = int(os.environ.get("AGENT_TEST_KILLS", "8"))
"""Each second one costs a start of Ray, so that a hundred are for those who have an hour."""
_PATIENCE = 180.0
Kill = Callable[[int, random.Random], bool]
"""Kills something of the run whose driver has this process id; false where there was nothing of that kind."""


def pairs(count: int) -> list[dict[str, str]]:
    """Return pairs p0, p1, …, six of each query."""
    return [{"id": f"p{n}", "query": f"add two numbers, way {n // 6}", "code": f"{ADD}# {n}\n"} for n in range(count)]


def expected(count: int) -> dict[str, int]:
    """Return the label of each pair."""
    return {f"p{number}": number // 3 % 2 if number % 3 == 0 else 1 for number in range(count)}


def answer(request: Request) -> Answer:
    """Say of each third pair that it is unclear; every reply is told from all others by its request's number."""
    found = re.search(r"# (\d+)\n", request.prompt)
    assert found is not None
    number, reason = int(found[1]), f"request {request.number}"
    verdict = label(number // 3 % 2, reason)
    asked = role(request)
    if asked == "screen":
        verdict = screen("unclear" if number % 3 == 0 else "match", reason)
    elif asked == "generate_test":
        verdict = program(f"# {reason}\n# <candidate>\n\n\ndef test_add():\n    assert add(1, 2) == {3 + number % 2}\n")
    return slow(0.02, reply(verdict))


def driver(pid: int, _chance: random.Random) -> bool:
    """Kill the command itself."""
    os.kill(pid, signal.SIGKILL)
    return True


def runner(pid: int, chance: random.Random) -> bool:
    """Kill the first process in one of the sandboxes of bubblewrap."""
    return one_of([child for child, _ in descendants(pid) if _name(child) != "bwrap" == _name(_parent(child))], chance)


def worker(pid: int, chance: random.Random) -> bool:
    """Kill one of Ray's processes that annotate."""
    return one_of([child for child, _ in descendants(pid) if _name(child).startswith("ray::Worker")], chance)


def raylet(pid: int, chance: random.Random) -> bool:
    """Kill the process by which Ray runs others on this machine."""
    return one_of([child for child, _ in descendants(pid) if _name(child) == "raylet"], chance)


def one_of(found: list[int], chance: random.Random) -> bool:
    """Kill one of these processes."""
    try:
        os.kill(chance.choice(sorted(found)), signal.SIGKILL)
    except (IndexError, ProcessLookupError):  # none is there, or it has just ended
        return False
    return True


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


class Killing:
    """A run of so many pairs; `command` are its arguments. What was killed is counted in `killed`.

    `seen` are the processes that the run had just before something was killed.
    """

    def __init__(self, agent: Commands, server: ChatServer, count: int, *options: str, seed: int = 20) -> None:
        file = agent.write("p.jsonl", pairs(count))
        self.agent, self.server, self.count = agent, server, count
        self.chance = random.Random(seed)
        self.command = ("annotate", file, "--model", "m", "--base-url", server.url, "-o", "run", "--json", *options)
        self.command = (*self.command, "--cache", "cache.sqlite", "--concurrency", str(AT_ONCE))
        self.killed: Counter[str] = Counter()
        self.ended = 0
        self.repeated = 0
        self.seen: set[Process] = set()
        self.process: Running | None = None

    def kill(self, kinds: Mapping[str, Kill], times: int) -> None:
        """Kill so many times, each kind in turn, at random moments; a run that ends of it is begun again."""
        requests = self.count * 5 // 3  # each pair is screened; a third has a program written and is then arbitrated
        names = list(kinds)
        for number in range(times):
            name = names[number % len(names)]
            left = requests - len(self.server.requests)
            self._go_on(self.chance.randint(0, max(0, left) // (times - number)))
            time.sleep(self.chance.uniform(0, 0.05))
            self.killed[name] += 1
            until(lambda name=name: self._killed(kinds[name]), f"a {name} to kill", _PATIENCE)  # type: ignore[misc]

    def _killed(self, kill: Kill) -> bool:
        process = self._running()  # also where it came to its end meanwhile
        self.seen |= descendants(process.pid)
        if not kill(process.pid, self.chance):
            return False
        if kill is driver:
            assert process.wait().code == -signal.SIGKILL
            self.process = None
            if "ray" not in self.command:  # of which two agents take a minute: they are waited for once, at the end
                until(lambda: not alive(self.seen), "the end of all that the killed command had started", 60)
        return True

    def _running(self) -> Running:
        """Return the command at work; one that a kill ended is given again."""
        if self.process is not None and self.process.over():
            self._check_killed(self.process.wait())
        if self.process is None:
            reap()
            self.process = self.agent.start(*self.command)
        return self.process

    def _check_killed(self, ended: Ended) -> None:
        """Demand that a command that came to its end did so for a kill, as of the sandbox that is tried at first."""
        self.process = None
        self.ended += 1
        assert ended.code in (2, 3), ended
        assert "Traceback" not in ended.err
        assert self.ended <= self.killed.total() - self.killed["driver"], ended

    def _go_on(self, requests: int) -> None:
        """Let the run send so many more requests."""
        goal = len(self.server.requests) + requests
        try:
            until(
                lambda: bool(self._running()) and len(self.server.requests) >= goal, f"{requests} requests", _PATIENCE
            )
        except AssertionError as error:
            raise AssertionError(f"{error}: {self._running().err.read_text()}") from error

    def finish(self) -> None:
        """Let the run come to its end, and check that all is as it would be undisturbed."""
        ended = self._running().wait(300)
        while ended.code > 1:
            self._check_killed(ended)
            ended = self._running().wait(300)
        assert (ended.code, ended.json["errors"]) == (0, {}), ended.err
        until(self.server.has_received_all, "the end of its connections")
        run = self.agent.folder / "run"
        found = annotations(run)
        assert Counter(each["id"] for each in found) == dict.fromkeys(expected(self.count), 1)
        labels = [json.loads(line) for line in (run / "labels.jsonl").read_text().splitlines()]
        assert {each["id"]: each["label"] for each in labels} == expected(self.count)
        assert self.agent("runs", "verify", "run", "--json").json["runs"][0]["problems"] == []
        self._check_paid()

    def _check_paid(self) -> None:
        """Demand that nothing was asked again that the cache holds the reply to."""
        last: dict[str, int] = {}
        for request in self.server.requests:
            last[json.dumps(request.body)] = request.number
        held = stored(self.agent.folder / "cache.sqlite")
        bodies = {json.dumps(self.server.requests[number].body): number for number in held}
        assert len(bodies) == len(held)
        assert {body: last[body] for body in bodies} == bodies
        self.repeated = len(self.server.requests) - len(held)
        # what was in flight when one of these was killed, and nothing else, is lost
        assert self.repeated <= AT_ONCE * sum(self.killed[name] for name in ("driver", "worker", "raylet"))


def stored(cache: Path) -> set[int]:
    """Return the numbers of the requests whose replies are in the cache."""
    with sqlite3.connect(cache) as connection:
        rows = connection.execute("SELECT reply FROM replies").fetchall()
    connection.close()
    texts = [json.loads(zlib.decompress(row[0]))["text"] for row in rows]
    return {int(found[1]) for text in texts if (found := re.search(r"request (\d+)", text))}
