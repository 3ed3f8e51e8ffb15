"""Runs the command `agent` in processes of its own, which are copies of one that has imported the package."""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tests.cli import forks
from tests.llm.server import Answer, says

ROOT = Path(__file__).parents[2]
ADD = "def add(a, b):\n    return a + b\n"


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
    end: socket.socket
    out: Path
    err: Path
    code: int | None = None

    def over(self) -> bool:
        """Say whether it has ended."""
        return bool(select.select([self.end], [], [], 0)[0])

    def wait(self, seconds: float = 60) -> Ended:
        """Wait for its end.

        Raises:
            AssertionError: it is still at work after so long.
        """
        assert select.select([self.end], [], [], seconds)[0], f"still at work: {self.err.read_text('utf-8')}"
        self.code = int(self.end.recv(100))
        self.end.close()
        return Ended(self.code, self.out.read_text("utf-8"), self.err.read_text("utf-8"))


def environment(**changes: str) -> dict[str, str]:
    """Return this process's environment without keys and settings of the user's own."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "AGENT_"))}
    return {**ours, "PYTHONPATH": str(ROOT), **changes}


@contextmanager
def serving() -> Iterator[Path]:
    """Start the process that is copied for each command; return a folder for the PATH, in which `agent` is by it."""
    with tempfile.TemporaryDirectory(prefix="agent-forks-") as name:
        folder = Path(name)
        Commands.server = f"{folder}/socket"
        command = shlex.join([sys.executable, "-S", "-E", forks.__file__, Commands.server])
        (folder / "agent").write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (folder / "agent").chmod(0o755)
        code = f"from tests.cli.forks import serve; serve({Commands.server!r})"
        with subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield folder
            process.communicate()


class Commands:
    """Runs commands in `folder`, one after the other."""

    server: ClassVar[str]
    """Where the process is asked that is copied for each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: Running | None = None

    def __call__(self, *arguments: str | Path, **changes: str) -> Ended:
        """Run `agent` with arguments; `changes` are variables of its environment."""
        return self.start(*arguments, **changes).wait()

    def start(self, *arguments: str | Path, **changes: str) -> Running:
        """Start `agent`, in a session of its own; wait for its end before the next command."""
        out, err = self.folder / ".out", self.folder / ".err"
        with Path(os.devnull).open() as nothing, out.open("wb") as said, err.open("wb") as told:
            files = [each.fileno() for each in (nothing, said, told)]
            words = list(map(str, arguments))
            end, pid = forks.start(self.server, words, str(self.folder), environment(**changes), files)
        self._running = Running(pid, end, out, err)
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
