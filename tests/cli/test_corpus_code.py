"""`agent corpus code`: output, exit codes and processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.cli.exit_codes import DONE, STOPPED
from tests.cli.commands import ADD, Commands, make_environment
from tests.cli.processes import find_alive, find_descendants, wait_until
from tests.corpus.test_licences import MIT
from tests.exports.runs import read_lines

COMMAND = ("corpus", "code", "-o", "codes.jsonl")
# a worker that never ends
ENDLESS = """
import time
from agent.languages.python import language
import agent.cli
language.find_functions = lambda *_: time.sleep(1000)
agent.cli.main()
"""


def test_prints_what_was_kept_and_what_was_removed(agent: Commands) -> None:
    rows = [{"code": ADD}, {"code": ADD}, {"code": "def f(): pass"}, {"code": ""}]
    agent.write("a.jsonl", rows)
    agent.write("a.py", "def (")
    result = agent(*COMMAND, "a.jsonl", "a.py", "--filter", "cosqa-plus", "--json").json
    reason = read_lines(agent.folder / "codes.removed.jsonl")[0]["removed_by"]
    assert {name: result[name] for name in ("files", "functions", "merged", "kept", "clusters", "without_licence")} == {
        "files": 2, "functions": 3, "merged": 1, "kept": 1, "clusters": 1, "without_licence": 1
    }  # fmt: skip
    assert (result["removed"], sum(result["damaged"].values())) == ({reason: 1}, 2)
    assert [place["path"] for place in result["first_damaged"]] == ["a.jsonl", "a.py"]
    text = agent(*COMMAND, "a.jsonl", "a.py", "--no-clusters", "--force")
    assert (text.code, "a.py:1: " in text.out, text.out.splitlines()[-1].split()[:4]) == (
        DONE, True, ["Next:", "agent", "corpus", "candidates"]
    )  # fmt: skip


def test_tests_and_excluded_files_are_left_out(agent: Commands) -> None:
    for name in ("code/a.py", "code/tests/b.py", "code/docs/c.py"):
        (agent.folder / name).parent.mkdir(exist_ok=True)
        agent.write(name, f"def {Path(name).stem}(): pass")
    agent.write("code/LICENSE", MIT)
    result = agent(*COMMAND, "code", "--exclude", "docs", "--json").json
    assert (result["kept"], result["files_left_out"], result["without_licence"]) == (1, {"test": 1, "excluded": 1}, 0)
    assert agent(*COMMAND, "code", "--with-tests", "--force", "--json").json["kept"] == 3


def test_files_in_other_languages_are_left_out(agent: Commands) -> None:
    (agent.folder / "code/b.js").mkdir(parents=True)
    for name in ("code/a.py", "code/b.js/b.ts", "code/c.sql", "code/d.ipynb", "code/e.min.js"):
        agent.write(name, "const f = (a: string) => a;")
    result = agent(*COMMAND, "code", "--language", "TS", "--json").json
    assert (result["kept"], result["files_left_out"]) == (1, {"other language": 3, "minified": 1})


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("none",), "none"),
        (("tests",), "--with-tests"),
        (("a.py", "--filter", "csqa"), "cosqa-plus"),
        (("a.py", "--language", "cobol"), "javascript"),
        (("empty",), "no functions"),
        (("notes.txt",), "notes.txt"),
        (("a.py", "-o", "notes.txt"), ".jsonl"),
        (("a.py", "-o", "a.jsonl"), "--force"),
        (("a.jsonl", "-o", "a.jsonl", "--force"), "a.jsonl"),
    ],
)
def test_wrong_usage_leaves_no_files(agent: Commands, arguments: tuple[str, ...], word: str) -> None:
    agent.write("a.py", ADD)
    agent.write("a.jsonl", [{"code": ADD}])
    agent.write("notes.txt", "x")
    for name in ("empty", "tests"):
        (agent.folder / name).mkdir()
    agent.write("tests/test_a.py", ADD)
    before = agent.read_files()
    agent.check_refused(word, *COMMAND, *arguments)
    assert agent.read_files() == before


@pytest.mark.parametrize("end", ["ctrl-c", "worker", "kill"])
def test_a_stopped_command_leaves_no_files_and_no_processes(tmp_path: Path, end: str) -> None:
    for number in range(200):
        (tmp_path / f"{number}.py").write_text(ADD)
    command = [sys.executable, "-c", ENDLESS, "corpus", "code", ".", "-o", "codes.jsonl", "--jobs", "2"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=make_environment(), stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        wait_until(lambda: len(find_descendants(process.pid)) >= 2, "the start of the workers")
        workers = find_descendants(process.pid)
        if end == "ctrl-c":
            os.killpg(process.pid, signal.SIGINT)
        elif end == "worker":
            os.kill(min(workers)[0], signal.SIGKILL)
        else:
            process.kill()
        _, err = process.communicate(timeout=60)
    assert process.returncode == (-signal.SIGKILL if end == "kill" else STOPPED), err
    wait_until(lambda: not find_alive(workers), "the end of the workers")
    if end != "kill":
        assert "Traceback" not in err
        assert {path.suffix for path in tmp_path.iterdir()} == {".py"}
