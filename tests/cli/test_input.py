"""Bad input ends in one message with file, line and cause. Unusual input is accepted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from agent.runs.store.run_view import load_run
from tests.cli.commands import ADD, Commands, pairs, read_annotations

OPTIONS = ("--model", "heuristic", "--variant", "ps_fa", "-o", "run")
GOOD = json.dumps(pairs(1)[0])


def test_unreadable_file_is_reported(agent: Commands) -> None:
    (agent.folder / "folder.jsonl").mkdir()
    (agent.folder / "latin.jsonl").write_bytes(b'{"query": "caf\xe9", "code": "x"}\n')
    for name in ("missing.jsonl", "folder.jsonl", "latin.jsonl", "p.txt"):
        agent.check_refused(f"agent: {name}", "annotate", name, *OPTIONS)


def test_bad_lines_are_listed_and_can_be_skipped(agent: Commands) -> None:
    file = agent.write("p.jsonl", f'{GOOD}\nnope\n{{"query": "q"}}\n')
    refusal = agent.check_refused("--on-bad-line skip", "annotate", file, *OPTIONS)
    assert refusal.startswith("agent: p.jsonl:2: ")
    assert "\n  p.jsonl:3: " in refusal
    assert not (agent.folder / "run").exists()
    skipped = agent("annotate", file, *OPTIONS, "--on-bad-line", "skip", "--json")
    assert (skipped.code, skipped.json["pairs"]) == (0, 1)
    assert re.search(r"^skipped 2 .*p\.jsonl:2: ", skipped.err, re.M)


def test_hostile_input_is_escaped(agent: Commands) -> None:
    row = json.dumps({"id": "\x1b[2J\u202e", "query": "q", "code": "c"})
    result = agent("annotate", agent.write("p.jsonl", f"{row}\n{row}\n"), *OPTIONS)
    assert result.code == 2
    assert "\x1b" not in result.err
    assert "\u202e" not in result.err


def test_the_fields_of_other_datasets_are_mapped(agent: Commands) -> None:
    file = agent.write("p.jsonl", [{"question": "add two numbers", "solution": ADD, "key": "k1"}])
    refusal = agent.check_refused("'question', 'solution', 'key'", "annotate", file, *OPTIONS)
    assert "--map query=question,code=FIELD" in refusal
    done = agent("annotate", file, *OPTIONS, "--map", "query=question,code=solution,id=key")
    assert done.code == 0
    assert read_annotations(agent.folder / "run")[0]["id"] == "k1"


ODD = {
    "does not parse": "def add(a, b:\n  return a +",
    "a megabyte": "x = 1\n" * 170_000,
    "NUL": "def add(a, b):\n    return a + b\0\n",
    "lone surrogate": "s = '\ud800'\n",
    "CRLF": "def add(a, b):\r\n    return a + b\r\n",
    "BOM": "\ufeff" + ADD,
    "markup": "```\n</code>\n{{ 7 * 7 }} {% raw %}\x1b[2J",
}


def test_unusual_code_is_accepted(agent: Commands) -> None:
    rows = [{"id": name, "query": f"add \ud800 {name}", "code": code} for name, code in ODD.items()]
    done = agent("annotate", agent.write("p.jsonl", rows), *OPTIONS, "--json")
    assert (done.code, done.json["errors"]) == (0, {})
    assert {a["id"] for a in read_annotations(agent.folder / "run")} == {row["id"] for row in rows}
    with load_run(agent.folder / "run") as run:
        codes = {pair.id: pair.code for pair in run.pairs()}
    assert codes["NUL"] == ODD["NUL"]
    assert len(codes["a megabyte"]) > 1_000_000
    resumed = agent("annotate", "p.jsonl", *OPTIONS, "--json")
    assert (resumed.code, resumed.json["annotated_now"]) == (0, 0)


def test_ids_are_never_paths(agent: Commands) -> None:
    ids = ["../../escape", "/etc/x", "a\nb", "."]
    rows = [{**row, "id": name} for name, row in zip(ids, pairs(4), strict=True)]
    before = set(Path(agent.folder).parent.iterdir())
    assert agent("annotate", agent.write("p.jsonl", rows), *OPTIONS).code == 0
    assert {a["id"] for a in read_annotations(agent.folder / "run")} == set(ids)
    assert set(Path(agent.folder).parent.iterdir()) == before


def test_files_patterns_and_standard_input_form_one_run(agent: Commands) -> None:
    rows = pairs(4)
    agent.write("a.jsonl", rows[:1])
    (agent.folder / "more").mkdir()
    for number in (1, 2):
        agent.write(f"more/{number}.csv", f'id,query,code\n{rows[number]["id"]},add two,"{ADD}"\n')
    done = agent("annotate", "a.jsonl", "more/*.csv", "--model", "heuristic", "--variant", "ps_fa", "--json")
    assert (done.code, done.json["pairs"], done.json["run"]) == (0, 3, "runs/a-ps_fa-heuristic")
    agent.check_refused("agent: standard input: ", "annotate", "-", *OPTIONS)


def test_appended_pairs_resume_and_changed_pairs_are_rejected(agent: Commands) -> None:
    rows = pairs(3)
    agent.write("p.jsonl", rows[:2])
    assert agent("annotate", "p.jsonl", *OPTIONS).code == 0
    agent.write("p.jsonl", rows)
    more = agent("annotate", "p.jsonl", *OPTIONS, "--json")
    assert (more.code, more.json["pairs"], more.json["annotated_now"]) == (0, 3, 1)
    assert re.search(r"pairs .*\b2 .*\b3\b", more.err)
    agent.write("p.jsonl", [{**rows[0], "code": "x = 1"}, rows[2]])
    refusal = agent.check_refused("(code)", "annotate", "p.jsonl", *OPTIONS)
    assert refusal.startswith("agent: run: ")
    assert re.findall(r"^  1 .*'(p\d)'", refusal, re.M) == ["p1", "p0"]


WORDS = [[f"{letter}{n}" for letter in "abcdefgh"] for n in range(30)]  # no two texts are near duplicates
NAMED = [
    {"key": f"p{n}", "title": " ".join(words), "body": f"def {words[0]}():\n    {' + '.join(words)}", "gold": n % 2}
    for n, words in enumerate(WORDS)
]
MAP = ("--map", "id=key,query=title,code=body,label=gold")
READERS = {
    "annotate": ("annotate", "p.jsonl", *OPTIONS),
    "ablate": ("ablate", "p.jsonl", "--gold", "p.jsonl", "--variants", "ps_fa", "--model", "heuristic", "-o", "run"),
    "score": ("score", "p.jsonl", "--gold", "p.jsonl"),
    "report": ("report", "made", "--gold", "p.jsonl", "-o", "r.html"),
    "corpus queries": ("corpus", "queries", "q.jsonl", "-o", "out.jsonl"),
    "corpus code": ("corpus", "code", "p.jsonl", "-o", "out.jsonl"),
    "corpus candidates": ("corpus", "candidates", "p.jsonl", "p.jsonl", "--searcher", "bm25", "--combine", "rrf",
                          "-o", "out.jsonl"),
    "corpus decontaminate": ("corpus", "decontaminate", "p.jsonl", "--benchmark", "other.jsonl", "-o", "out.jsonl"),
    "corpus split": ("corpus", "split", "p.jsonl", "-o", "out"),
    "corpus describe": ("corpus", "describe", "p.jsonl"),
    "retrieval run": ("retrieval", "run", "p.jsonl", "--searcher", "bm25", "-o", "out"),
    "train": ("train", "p.jsonl", "--recipe", "unif", "-o", "out", "--dry-run"),
    "prefer": ("prefer", "p.jsonl", "p.jsonl", "--model", "replay:none.jsonl", "-o", "out"),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.embed] * (name == "train")) for name in READERS]
)
def test_fields_can_be_named_wherever_rows_are_read(agent: Commands, name: str) -> None:
    agent.write("p.jsonl", NAMED)
    agent.write("q.jsonl", [{"key": f"p{n}", "title": "how to sort a list in python"} for n in range(3)])
    agent.write("other.jsonl", [{"query": "join two texts", "code": "x"}])
    agent.write("made.jsonl", pairs(2))
    agent("annotate", "made.jsonl", *OPTIONS[:-1], "made")
    assert agent(*READERS[name]).code == 2
    mapping = ("--map", "id=key,query=title") if name == "corpus queries" else MAP
    result = agent(*READERS[name], *mapping)
    if name == "prefer":  # both files were read, and have no codes to compare
        assert "has no query in common" in result.err
    else:
        assert (result.code, result.err.count("Traceback")) == (0, 0), result.err


@pytest.mark.parametrize("name", READERS)
def test_advice_names_only_options_of_the_command(agent: Commands, name: str) -> None:
    agent.write("p.jsonl", [*NAMED[:2], {"query": "", "code": "x"}, {"query": "a", "code": "b"}])
    agent.write("q.jsonl", "{")
    agent.write("other.jsonl", [{"query": "join two texts", "code": "x"}])
    result, shown = agent(*READERS[name]), agent(*name.split(), "--help").out
    assert result.code == (0 if name == "corpus code" else 2)  # lists bad rows
    assert [option for option in re.findall(r"--[a-z-]+", result.err) if option not in shown] == []
