"""`agent corpus queries`: output, files, wrong usage and Ctrl-C."""

from __future__ import annotations

from typing import NoReturn

import pytest
import typer

from agent.cli.corpus_options import QueriesOptions
from agent.cli.corpus_queries import run
from agent.cli.exit_codes import STOPPED
from agent.corpus.queries import QueryFilter
from tests.cli.commands import Commands
from tests.exports.runs import read_lines

QUERIES = "python sort\npython sort\npython ide\npython vim\npython ide 2\nsort\n"
REQUIRED = {"without python": 1}


def test_a_summary_counts_removed_queries_by_rule(agent: Commands) -> None:
    agent.write("a.txt", QUERIES)
    agent.write("gold.jsonl", [{"query": f"python {end}", "label": n} for end, n in (("a", 1), ("ide", 1), ("vim", 0))])
    command = ("corpus", "queries", "*.txt", "-o", "new/q.jsonl", "--labelled", "gold.jsonl")
    assert agent(*command, "--json").json == {
        "out": "new/q.jsonl", "removed_out": "new/q.removed.jsonl", "kept": 1, "removed": 5, "read": 6,
        "removed_by": {"Tools Usage": {"ide": 2, "vim": 1}, "duplicates": {"duplicate": 1}, "required": REQUIRED},
        "labelled": {"accuracy": pytest.approx(2 / 3), "f1": pytest.approx(2 / 3), "tp": 1, "fp": 0, "fn": 1, "tn": 1},
    }  # fmt: skip
    assert read_lines(agent.folder / "new/q.jsonl") == [{"id": "q1", "query": "python sort"}]
    removed = read_lines(agent.folder / "new/q.removed.jsonl")
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
    before = agent.read_files()
    agent.check_refused("", "corpus", "queries", *arguments.split())
    assert agent.read_files() == before


def test_ctrl_c_leaves_earlier_files_unchanged(agent: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    agent.write("a.txt", QUERIES)
    agent.write("q.jsonl", "old")
    monkeypatch.setattr(QueryFilter, "check", interrupt)
    with pytest.raises(typer.Exit) as caught:
        run([str(agent.folder / "a.txt")], agent.folder / "q.jsonl", QueriesOptions(rules="none", force=True))
    assert (caught.value.exit_code, agent.read_files()) == (STOPPED, {"a.txt": QUERIES.encode(), "q.jsonl": b"old"})
