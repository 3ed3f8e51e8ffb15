"""Runs `agent` commands in forks of a process that has already imported the package."""

from __future__ import annotations

import json
import os
import re
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
class CommandResult:
    """Exit code, standard output and standard error of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as one JSON value."""
        return json.loads(self.out)


@dataclass
class Running:
    """A running command. Its process id is also its session id."""

    pid: int
    exit_connection: socket.socket
    out: Path
    err: Path
    code: int | None = None

    def has_ended(self) -> bool:
        """Return whether the command has ended."""
        return bool(select.select([self.exit_connection], [], [], 0)[0])

    def wait(self, seconds: float = 60) -> CommandResult:
        """Wait until the command ends.

        Raises:
            AssertionError: it still runs after that time.
        """
        assert select.select([self.exit_connection], [], [], seconds)[0], (
            f"still running: {self.err.read_text('utf-8')}"
        )
        self.code = int(self.exit_connection.recv(100))
        self.exit_connection.close()
        return CommandResult(self.code, self.out.read_text("utf-8"), self.err.read_text("utf-8"))

    def stop(self, signal_number: int = signal.SIGINT, seconds: float = 60) -> CommandResult:
        """Send a signal and wait until the command ends."""
        os.kill(self.pid, signal_number)
        return self.wait(seconds)


def make_environment(**changes: str) -> dict[str, str]:
    """Return this process's environment without the user's keys and settings."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "AGENT_"))}
    return {**variables, "PYTHONPATH": str(ROOT), **changes}


@contextmanager
def serve_commands(*imports: str, **environment: str) -> Iterator[Path]:
    """Start the process that is forked for each command. Yield a folder for PATH with an `agent` that uses it.

    The process imports the modules `imports` too, with additional environment variables.
    """
    with tempfile.TemporaryDirectory(prefix="agent-forks-") as name:
        folder = Path(name)
        command = shlex.join([sys.executable, "-S", "-E", forks.__file__, f"{folder}/socket"])
        (folder / "agent").write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (folder / "agent").chmod(0o755)
        code = f"from tests.cli.forks import serve; serve({f'{folder}/socket'!r}, {imports!r})"
        variables = {**os.environ, **environment}
        with subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield folder
            process.communicate()


class Commands:
    """Runs consecutive commands in `folder`."""

    commands: ClassVar[Path]
    """The folder of the process that is forked for each command (`serve_commands`), unless an instance has another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: Running | None = None

    def __call__(self, *arguments: str | Path, **changes: str) -> CommandResult:
        """Run `agent` with arguments. `changes` are additional environment variables."""
        return self.start(*arguments, **changes).wait()

    def check_refused(self, message: str, *arguments: str | Path, **changes: str) -> str:
        """Run a command, check that it is wrong usage and prints only an error with `message`, and return the error."""
        result = self(*arguments, **changes)
        assert (result.code, result.out, message in result.err) == (2, "", True), result
        assert "Traceback" not in result.err
        return result.err

    def run_python(self, code: str, *arguments: str | Path) -> CommandResult:
        """Run Python code with arguments in a new process that has imported nothing."""
        command = [sys.executable, "-c", code, *map(str, arguments)]
        done = subprocess.run(command, cwd=self.folder, env=make_environment(), capture_output=True, text=True)
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str | Path, **changes: str) -> Running:
        """Start `agent` in a new session. Wait until it ends before the next command."""
        out, err = self.folder / ".out", self.folder / ".err"
        with Path(os.devnull).open() as null, out.open("wb") as out_file, err.open("wb") as err_file:
            files = [stream.fileno() for stream in (null, out_file, err_file)]
            words = list(map(str, arguments))
            server, environment = f"{self.commands}/socket", make_environment(**changes)
            connection, pid = forks.start(server, words, str(self.folder), environment, files)
        self._running = Running(pid, connection, out, err)
        return self._running

    def kill(self) -> None:
        """Kill a command that a failed test left running."""
        if self._running is not None and self._running.code is None:
            with suppress(ProcessLookupError):
                os.kill(self._running.pid, signal.SIGKILL)
            self._running.wait()

    def read_files(self) -> dict[str, bytes]:
        """Return the contents of all files in the folder by their relative paths."""
        files = (path for path in self.folder.rglob("*") if path.is_file() and path.name not in (".out", ".err"))
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in files}

    def write(self, name: str, rows: Sequence[Mapping[str, Any]] | bytes | str) -> Path:
        """Write a file of pairs (or any content) into the folder. Return its path relative to the folder."""
        file = self.folder / name
        if isinstance(rows, bytes):
            file.write_bytes(rows)
        elif isinstance(rows, str):
            file.write_text(rows, "utf-8")
        else:
            file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        return Path(name)


def pairs(count: int) -> list[dict[str, Any]]:
    """Return pairs p0, p1, … with different queries."""
    return [{"id": f"p{number}", "query": f"add two numbers, way {number}", "code": ADD} for number in range(count)]


def reply(text: str, **fields: Any) -> Answer:
    """Return a completion with plausible token counts."""
    return says(text, **{"prompt_tokens": 2000, **fields})


def read_figures(out: str, name: str) -> list[float]:
    """Return the numbers in a row of a printed table."""
    return [float(number) for row in re.findall(rf"^{name} +(.*)$", out, re.M) for number in re.findall(r"[\d.]+", row)]


def read_annotations(run: Path) -> list[dict[str, Any]]:
    """Return the annotations of a run, whose lines must all be complete."""
    content = (run / "annotations.jsonl").read_bytes()
    assert content == b"" or content.endswith(b"\n")
    return [json.loads(line) for line in content.split(b"\n")[:-1]]
