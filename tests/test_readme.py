"""Every command of the README is run, and what it shows is what comes out."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.llm.server import ChatServer, says
from tests.sandbox.wheelhouse import make_wheel

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ (.*)$", README, re.MULTILINE)
BY_MAKE = ("make demo", "make test")
DEMO = [
    "agent", "annotate", "examples/pairs.jsonl", "--model", "replay:examples/replies.jsonl", "--timeout", "5"
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as the README's reader has it: the examples, pairs of their own, a program, what it requires."""
    (tmp_path / "requirements.txt").write_text("tinything>=1  # the reader's own\n")
    (tmp_path / "wheels").mkdir()
    make_wheel(tmp_path / "wheels", "tinything")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    write_pairs(tmp_path, 4)
    for name, row in (("people", {"label": 0}), ("votes", {"votes": [1, 0, 1]})):
        rows = [{"id": str(number), **row} for number in range(1, 5)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    gold = [{"id": str(number), "label": number % 2} for number in range(1, 5)]
    (tmp_path / "gold.jsonl").write_text("".join(json.dumps(line) + "\n" for line in gold))
    (tmp_path / "snippet.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "program.py").write_text("# <candidate>\n\n\ndef test_double():\n    assert double(2) == 4\n")
    return tmp_path


def write_pairs(folder: Path, count: int) -> None:
    numbers = range(1, count + 1)
    pairs = [{"id": str(n), "query": f"add {n}", "code": f"def add{n}(x):\n    return x + {n}\n"} for n in numbers]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))


def run(command: str | list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command with this interpreter's programs first on the PATH; fail where it fails."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    words = shlex.split(command) if isinstance(command, str) else command
    return subprocess.run(
        words, cwd=folder, env={**os.environ, "PATH": path, **environment}, capture_output=True, text=True, check=True
    )


def untimed(story: str) -> str:
    """Return a story without the seconds of its executions."""
    return re.sub(r", [\d.]+ s$", "", story, flags=re.MULTILINE)


def run_until_interrupted(command: str, folder: Path) -> None:
    """Run a command that serves a page until it printed the address; fail where it does not end well."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    with subprocess.Popen(
        shlex.split(command), cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as serving:
        assert serving.stdout is not None
        assert serving.stdout.readline().startswith("http://127.0.0.1:")
        serving.send_signal(signal.SIGINT)
    assert serving.returncode == 0


def test_the_readme_has_commands_and_each_is_known() -> None:
    assert len(COMMANDS) >= 10
    assert {command.split()[0] for command in COMMANDS} == {"make", "agent", "python"}


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("make ")])
def test_make_commands_are_targets(command: str) -> None:
    assert re.search(rf"^{command.split()[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.bwrap
@pytest.mark.network
def test_the_demo_gives_the_output_that_is_shown(folder: Path) -> None:
    shown = run([*DEMO, "--out", "runs/demo", "--sandbox", "bwrap"], folder).stdout
    squeezed = {" ".join(line.split()) for line in shown.splitlines()}
    block = README.split("```text\n")[1].split("```")[0]
    unlike = [line for line in block.splitlines() if line and " ".join(line.split()) not in squeezed]
    # long lines are folded in a pipe
    assert {line.split()[0] for line in unlike} <= {"internal-client", "roman"}
    story = run("agent show runs/demo dedupe-order", folder).stdout
    end = README.split("```text\n")[2].split("```")[0]
    assert untimed(story).rstrip().endswith(f"\n\n{untimed(end).rstrip()}")
    replays = [command for command in COMMANDS if command.startswith("agent replay runs/demo")]
    assert [run(command, folder).stdout.splitlines()[0] for command in replays] == [
        "the same outcome",
        "replayed    12 of 12 pairs that were executed (a random sample, seed 0)",
    ]


@pytest.mark.bwrap
@pytest.mark.slow
def test_the_commands_for_own_pairs_work(folder: Path) -> None:
    write_pairs(folder, 60)
    served = [command for command in COMMANDS if "llm.example.org" in command or "runs/mine" in command]
    assert [command.split()[1] for command in served] == [
        "doctor",
        "annotate",
        "show",
        "show",
        "annotate",
        "report",
        "score",
        "score",
        "review",
    ]
    reply = json.dumps({"reason": "adds", "verdict": "match"})
    with ChatServer([says(reply, prompt_tokens=3000)]) as server:
        for command in served:
            command = command.replace("https://llm.example.org/v1", server.url).replace("MODEL", "gpt-4o-mini")
            if command.split()[1] == "review":
                run_until_interrupted(command, folder)
            else:
                run(command, folder, OPENAI_API_KEY="sk-test")
    lines = (folder / "runs/mine/annotations.jsonl").read_text().splitlines()
    assert len({json.loads(line)["id"] for line in lines}) == len(lines) == 60


@pytest.mark.bwrap
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=pytest.mark.long) if command == "agent doctor" else command
        for command in COMMANDS
        if command.split()[0] in ("agent", "python") and not re.search(r"llm\.example\.org|runs/(mine|demo)", command)
    ],
)
def test_every_other_command_works(command: str, folder: Path, open_folder: Path) -> None:
    done = run(command.replace("/srv/words", str(open_folder)), folder)
    assert done.stdout
    if "--json" in command:
        assert json.loads(done.stdout)["status"] == "passed"


def test_the_python_of_the_readme_runs(folder: Path) -> None:
    code = README.split("```python\n")[1].split("```")[0].replace('sandbox="auto"', 'sandbox="auto", variant="ps_fa"')
    body = "".join(f"    {line}\n" for line in code.splitlines())
    done = run([sys.executable, "-c", f"import asyncio\n\n\nasync def main():\n{body}\n\nasyncio.run(main())"], folder)
    assert done.stdout.startswith("1 ")
