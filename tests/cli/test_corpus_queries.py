"""`agent corpus queries`: output, files, wrong usage and Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from agent.cli import STOPPED, WRONG_USAGE
from tests.cli.commands import Commands, make_environment

QUERIES = "python sort\npython sort\npython ide\npython vim\npython ide 2\nsort\n"
REQUIRED = {"without python": 1}
ENDLESS = """
import sys, time
import agent.cli, agent.cli.corpus_queries as command
def read_queries(paths, names):
    print("begun", file=sys.stderr, flush=True)
    time.sleep(60)
command.read_queries = read_queries
agent.cli.main()
"""


def read_files(agent: Commands) -> dict[str, str]:
    return {path.name: path.read_text() for path in agent.folder.iterdir() if path.name not in (".out", ".err")}


def test_a_summary_counts_removed_queries_by_rule(agent: Commands) -> None:
    agent.write("a.txt", QUERIES)
    agent.write("gold.jsonl", [{"query": f"python {end}", "label": n} for end, n in (("a", 1), ("ide", 1), ("vim", 0))])
    command = ("corpus", "queries", "*.txt", "-o", "new/q.jsonl", "--labelled", "gold.jsonl")
    assert agent(*command, "--json").json == {
        "out": "new/q.jsonl", "removed_out": "new/q.removed.jsonl", "kept": 1, "removed": 5, "read": 6,
        "removed_by": {"Tools Usage": {"ide": 2, "vim": 1}, "duplicates": {"duplicate": 1}, "required": REQUIRED},
        "labelled": {"accuracy": pytest.approx(2 / 3), "f1": pytest.approx(2 / 3), "tp": 1, "fp": 0, "fn": 1, "tn": 1},
    }  # fmt: skip
    assert json.loads((agent.folder / "new/q.jsonl").read_text()) == {"id": "q1", "query": "python sort"}
    removed = [json.loads(line) for line in (agent.folder / "new/q.removed.jsonl").read_text().splitlines()]
    assert [row.get("duplicate_of") or row["removed_by"] for row in removed[:2]] == ["q1", "ide"]
    _, *rows, labelled, _, _, last = agent(*command, "--force").out.splitlines()
    assert [int(row.split()[-1]) for row in rows] == [3, 2, 1, 1, 1, 1, 1]
    assert ("0.667" in labelled, "agent corpus code" in last) == (True, True)


@pytest.mark.parametrize(
    "arguments",
    [
        "a.txt -o a.txt --force",
        "*.jsonl -o q.jsonl --force",
        "a.txt -o q.removed.jsonl",
        "a.txt -o rules.yaml --rules rules.yaml --force",
        "a.txt -o new.jsonl --labelled a.txt",
        "a.txt -o new.jsonl --rules cosq",
        "a.txt -o new.jsonl --min-words 3 --max-words 2",
        "empty.txt -o new.jsonl",
        "deep.json -o new.jsonl --rules none",
        "- -o new.jsonl",
    ],
)
def test_wrong_usage_writes_no_files(agent: Commands, arguments: str) -> None:
    deep = '{"query": "x", "a": ' + "[" * 1010 + "]" * 1010 + "}"
    for name, text in (("a.txt", QUERIES), ("empty.txt", "\n"), ("rules.yaml", "name: x"), ("deep.json", deep)):
        agent.write(name, text)
    agent.write("q.removed.jsonl", '{"query": "x"}')
    before = read_files(agent)
    result = agent("corpus", "queries", *arguments.split())
    assert (result.code, "Traceback" in result.err) == (WRONG_USAGE, False), result.err
    assert read_files(agent) == before


def test_ctrl_c_leaves_earlier_files_unchanged(agent: Commands) -> None:
    agent.write("a.txt", QUERIES)
    agent.write("q.jsonl", "old")
    command = [sys.executable, "-c", ENDLESS, "corpus", "queries", "a.txt", "-o", "q.jsonl", "--force"]
    process = subprocess.Popen(command, cwd=agent.folder, env=make_environment(), stderr=subprocess.PIPE, text=True)
    with process:
        assert process.stderr.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        assert "Traceback" not in process.stderr.read()
        assert process.wait() == STOPPED
    assert read_files(agent) == {"a.txt": QUERIES, "q.jsonl": "old"}
