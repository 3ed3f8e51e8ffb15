"""Ctrl-C at any moment ends in one line and exit code 3, without traceback."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.cli.exit_codes import DONE, SOME_ERRORS, STOPPED
from tests.cli.commands import Commands, make_environment, pairs
from tests.cli.processes import find_alive, find_descendants, wait_until

# Python handles signals that arrive before the package is imported
_BEGIN = "import sys; from agent.cli.entry_point import main; print('begun', file=sys.stderr, flush=True); main()"
_HEURISTIC = ("--model", "heuristic", "--sandbox", "bwrap")


class Process:
    """A command in a new process without imports."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BEGIN, *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            cwd=folder, env=make_environment(), start_new_session=True, text=True,
        )  # fmt: skip
        self.pid = self._process.pid
        assert self._process.stderr is not None
        assert self._process.stderr.readline() == "begun\n"

    def wait(self) -> tuple[int, str]:
        """Wait until the command and its descendants end. Return its exit code and standard error."""
        children = find_descendants(self.pid)
        try:
            _, err = self._process.communicate(timeout=60)
        finally:
            self._process.kill()
        wait_until(lambda: not find_alive(children), "the end of all processes", 10)
        return self._process.returncode, err


@pytest.fixture
def run(agent: Commands) -> Commands:
    """A folder with a run of four pairs and gold labels."""
    rows = [{**row, "label": 1} for row in pairs(4)]
    agent.write("gold.jsonl", rows)
    agent("annotate", agent.write("p.jsonl", rows), "-o", "run", "--without", "screen", *_HEURISTIC)
    return agent


@pytest.mark.long
@pytest.mark.bwrap
@pytest.mark.parametrize(
    "command",
    [
        "show run",
        "report run",
        "score run --gold gold.jsonl --resamples 20000",
        "replay run --json",
        "annotate p.jsonl -o new --model heuristic --sandbox bwrap",
        "ablate p.jsonl -o table --gold gold.jsonl --model heuristic --sandbox bwrap --variants full,ps_fa",
    ],
)
def test_ctrl_c_at_any_moment_ends_without_traceback(run: Commands, command: str) -> None:
    rng = random.Random(command)
    codes = []
    for longest in (0.05, 0.3, 1.0, 3.0):
        process = Process(run.folder, *command.split())
        time.sleep(rng.uniform(0, longest))
        os.kill(process.pid, signal.SIGINT)
        code, err = process.wait()
        codes.append(code)
        assert code in (DONE, SOME_ERRORS, STOPPED), err
        assert "Interrupted" in err or code != STOPPED
        assert "Traceback" not in err
        assert not list(run.folder.glob("**/*.tmp"))
    assert STOPPED in codes


@pytest.mark.long
@pytest.mark.bwrap
@pytest.mark.parametrize("command", ["replay run", "annotate p.jsonl -o new --model heuristic --sandbox bwrap"])
def test_second_ctrl_c_leaves_no_process_behind(run: Commands, command: str) -> None:
    for seconds in (0.0, 0.2):
        process = Process(run.folder, *command.split())
        wait_until(lambda: len(find_descendants(process.pid)) > 1, "a sandbox")  # noqa: B023
        os.kill(process.pid, signal.SIGINT)
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGINT)
        code, err = process.wait()
        assert code == STOPPED, err
        assert "Traceback" not in err


def test_unencodable_output_is_escaped(agent: Commands) -> None:
    rows = [{"id": "1", "query": "sch\u00f6n \u2192 \U0001f600", "code": "x = 1\n"}]
    agent("annotate", agent.write("p.jsonl", rows), "-o", "run", "--variant", "single_llm", "--model", "heuristic")
    shown = subprocess.run(
        [sys.executable, "-m", "agent", "show", "run", "1"],
        cwd=agent.folder, env=make_environment(PYTHONIOENCODING="ascii"), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "sch\\xf6n \\u2192 \\U0001f600" in shown.stdout
