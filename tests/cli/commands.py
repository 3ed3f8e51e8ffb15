"""Runs the command `agent` in processes of its own.

They are copies (forks) of a process that holds the package's imports already, so that a command takes milliseconds.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.llm.server import Answer, says

ROOT = Path(__file__).parents[2]
ADD = "def add(a, b):\n    return a + b\n"

_SERVER = """
import gc, json, os, sys, traceback
import agent.cli, agent.cli.app, agent.cli.annotate, agent.cli.doctor, agent.cli.execute, agent.cli.graph
import agent.cli.ablate, agent.cli.replay, agent.cli.score, agent.cli.show, numpy, scipy.stats
import agent.llm.heuristic, agent.llm.replay, agent.languages.python
import langchain_openai, langgraph.graph, langgraph.runtime, agent.llm.openai, agent.sandbox.bwrap.backend
import agent.prompts

def serve(job):
    os.setsid()
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["environment"])
    for descriptor, name in ((0, os.devnull), (1, job["out"]), (2, job["err"])):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), descriptor)
    sys.argv = ["agent", *job["arguments"]]
    try:
        agent.cli.main()
        return 0
    except SystemExit as leaving:
        return leaving.code or 0
    except BaseException:
        traceback.print_exc()
        return 70

agent.prompts.Prompts()  # compiled once for all
# what a collection of garbage does not look at, the copies need not copy
gc.freeze()

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        code = serve(json.loads(line))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@dataclass(frozen=True)
class Ended:
    """What a command left: exit code, standard output, standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as one JSON value."""
        return json.loads(self.out)


@dataclass
class Running:
    """A command at work; its process id is that of its session too."""

    pid: int
    codes: IO[bytes]
    out: Path
    err: Path
    code: int | None = None

    def over(self) -> bool:
        """Say whether it has ended."""
        return bool(select.select([self.codes], [], [], 0)[0])

    def wait(self, seconds: float = 60) -> Ended:
        """Wait for its end.

        Raises:
            AssertionError: it is still at work after so long.
        """
        assert select.select([self.codes], [], [], seconds)[0], f"still at work: {self.err.read_text('utf-8')}"
        self.code = int(self.codes.readline())
        return Ended(self.code, self.out.read_text("utf-8"), self.err.read_text("utf-8"))


def environment(**changes: str) -> dict[str, str]:
    """Return this process's environment without keys and settings of the user's own."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "AGENT_"))}
    return {**ours, "PYTHONPATH": str(ROOT), **changes}


class Commands:
    """Runs commands in `folder`, one after the other."""

    def __init__(self, server: subprocess.Popen[bytes], folder: Path) -> None:
        self._server = server
        self.folder = folder
        self._running: Running | None = None

    @staticmethod
    def serve() -> subprocess.Popen[bytes]:
        """Start the process that is copied for each command."""
        # without a buffer, in which the exit code of a quick command would hide from `select`
        return subprocess.Popen(
            [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, cwd=ROOT
        )

    def __call__(self, *arguments: str | Path, **changes: str) -> Ended:
        """Run `agent` with arguments; `changes` are variables of its environment."""
        return self.start(*arguments, **changes).wait()

    def start(self, *arguments: str | Path, **changes: str) -> Running:
        """Start `agent`, in a session of its own; wait for its end before the next command."""
        out, err = self.folder / ".out", self.folder / ".err"
        for file in (out, err):
            file.write_bytes(b"")
        job = {
            "arguments": list(map(str, arguments)),
            "cwd": str(self.folder),
            "environment": environment(**changes),
            "out": str(out),
            "err": str(err),
        }
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(job).encode() + b"\n")
        self._running = Running(int(self._server.stdout.readline()), self._server.stdout, out, err)
        return self._running

    def end(self) -> None:
        """Kill what a failed test has left running."""
        if self._running is not None and self._running.code is None:
            with suppress(ProcessLookupError):
                os.kill(self._running.pid, signal.SIGKILL)
            self._running.wait()

    def write(self, name: str, rows: Sequence[Mapping[str, Any]] | bytes | str) -> Path:
        """Write a file of pairs (or any content) into the folder; return its path in the folder."""
        file = self.folder / name
        if isinstance(rows, bytes):
            file.write_bytes(rows)
        elif isinstance(rows, str):
            file.write_text(rows, "utf-8")
        else:
            file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        return Path(name)


def pairs(count: int) -> list[dict[str, Any]]:
    """Return pairs with ids p0, p1, … and a query each."""
    return [{"id": f"p{number}", "query": f"add two numbers, way {number}", "code": ADD} for number in range(count)]


def reply(text: str, **fields: Any) -> Answer:
    """A completion that has read the whole of our prompts."""
    return says(text, **{"prompt_tokens": 2000, **fields})


def annotations(run: Path) -> list[dict[str, Any]]:
    """Return the lines of a run, each of which must be whole."""
    content = (run / "annotations.jsonl").read_bytes()
    assert content == b"" or content.endswith(b"\n")
    return [json.loads(line) for line in content.split(b"\n")[:-1]]
