"""Bad input is one message that names file, line and cause; odd input is data."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from agent.store import load_run
from tests.cli.commands import ADD, Commands, annotations, pairs

OPTIONS = ("--model", "heuristic", "--variant", "ps_fa", "-o", "run")
GOOD = json.dumps(pairs(1)[0])


@pytest.mark.parametrize(
    ("content", "place", "cause"),
    [
        ("", "p.jsonl: ", "the file is empty"),
        (f"{GOOD}\n{{oops\n", "p.jsonl:2: ", "JSON"),
        (f"{GOOD}\n[1]\n", "p.jsonl:2: ", "object"),
        (f'{GOOD}\n{{"id": "x", "query": "q"}}\n', "p.jsonl:2: ", "code"),
        (f'{GOOD}\n{{"id": "x", "query": 7, "code": "c"}}\n', "p.jsonl:2: ", "query"),
        (f"{GOOD}\n\n{GOOD}\n", "p.jsonl:3: ", "the id 'p0' is that of line 1 too"),
    ],
)
def test_a_bad_file_is_refused_with_place_and_cause(agent: Commands, content: str, place: str, cause: str) -> None:
    ended = agent("annotate", agent.write("p.jsonl", content), *OPTIONS)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"agent: {place}")
    assert cause in ended.err
    assert "Traceback" not in ended.err
    assert not (agent.folder / "run").exists()


def test_a_file_that_cannot_be_read_is_told(agent: Commands) -> None:
    (agent.folder / "folder.jsonl").mkdir()
    (agent.folder / "latin.jsonl").write_bytes(b'{"query": "caf\xe9", "code": "x"}\n')
    for name in ("missing.jsonl", "folder.jsonl", "latin.jsonl", "p.txt"):
        ended = agent("annotate", name, *OPTIONS)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.startswith(f"agent: {name}")
        assert "Traceback" not in ended.err


def test_several_bad_lines_are_listed_and_can_be_skipped(agent: Commands) -> None:
    file = agent.write("p.jsonl", f'{GOOD}\nnope\n{{"query": "q"}}\n')
    refused = agent("annotate", file, *OPTIONS)
    assert refused.err.startswith("agent: p.jsonl:2: ")
    assert "\n  p.jsonl:3: " in refused.err
    assert "2 of 3 lines are bad: mend them, or leave them out with --on-bad-line skip" in refused.err
    skipped = agent("annotate", file, *OPTIONS, "--on-bad-line", "skip", "--json")
    assert (skipped.code, skipped.json["pairs"]) == (0, 1)
    assert "skipped 2 bad lines, the first: p.jsonl:2: " in skipped.err


def test_hostile_text_in_the_input_does_not_reach_the_terminal(agent: Commands) -> None:
    row = json.dumps({"id": "\x1b[2J\u202e", "query": "q", "code": "c"})
    ended = agent("annotate", agent.write("p.jsonl", f"{row}\n{row}\n"), *OPTIONS)
    assert ended.code == 2
    assert "\x1b" not in ended.err
    assert "\u202e" not in ended.err


def test_the_fields_of_other_datasets_are_mapped(agent: Commands) -> None:
    file = agent.write("p.jsonl", [{"question": "add two numbers", "solution": ADD, "key": "k1"}])
    unmapped = agent("annotate", file, *OPTIONS)
    assert unmapped.code == 2
    assert "fields here: 'question', 'solution', 'key'" in unmapped.err
    assert "--map query=question,code=FIELD" in unmapped.err
    done = agent("annotate", file, *OPTIONS, "--map", "query=question,code=solution,id=key")
    assert done.code == 0
    assert annotations(agent.folder / "run")[0]["id"] == "k1"


ODD = {
    "does not parse": "def add(a, b:\n  return a +",
    "a megabyte": "x = 1\n" * 170_000,
    "NUL": "def add(a, b):\n    return a + b\0\n",
    "lone surrogate": "s = '\ud800'\n",
    "CRLF": "def add(a, b):\r\n    return a + b\r\n",
    "BOM": "\ufeff" + ADD,
    "markup": "```\n</code>\n{{ 7 * 7 }} {% raw %}\x1b[2J",
}


def test_odd_code_is_data(agent: Commands) -> None:
    rows = [{"id": name, "query": f"add \ud800 {name}", "code": code} for name, code in ODD.items()]
    done = agent("annotate", agent.write("p.jsonl", rows), *OPTIONS, "--json")
    assert (done.code, done.json["errors"]) == (0, {})
    assert {a["id"] for a in annotations(agent.folder / "run")} == {row["id"] for row in rows}
    with load_run(agent.folder / "run") as run:
        kept = {pair.id: pair.code for pair in run.pairs()}
    assert kept["NUL"] == ODD["NUL"]
    assert len(kept["a megabyte"]) > 1_000_000
    again = agent("annotate", "p.jsonl", *OPTIONS, "--json")
    assert (again.code, again.json["annotated_now"]) == (0, 0)


def test_ids_are_never_paths(agent: Commands) -> None:
    ids = ["../../escape", "/etc/x", "a\nb", "."]
    rows = [{**row, "id": name} for name, row in zip(ids, pairs(4), strict=True)]
    before = set(Path(agent.folder).parent.iterdir())
    assert agent("annotate", agent.write("p.jsonl", rows), *OPTIONS).code == 0
    assert {a["id"] for a in annotations(agent.folder / "run")} == set(ids)
    assert set(Path(agent.folder).parent.iterdir()) == before


def test_several_files_patterns_and_standard_input_are_one_run(agent: Commands) -> None:
    rows = pairs(4)
    agent.write("a.jsonl", rows[:1])
    (agent.folder / "more").mkdir()
    for number in (1, 2):
        agent.write(f"more/{number}.csv", f'id,query,code\n{rows[number]["id"]},add two,"{ADD}"\n')
    done = agent("annotate", "a.jsonl", "more/*.csv", "--model", "heuristic", "--variant", "ps_fa", "--json")
    assert (done.code, done.json["pairs"], done.json["run"]) == (0, 3, "runs/a-ps_fa-heuristic")
    empty = agent("annotate", "-", *OPTIONS)
    assert (empty.code, empty.err.partition(";")[0]) == (2, "agent: standard input: holds no pairs")


def test_appended_pairs_go_on_in_the_same_folder_and_changed_ones_are_named(agent: Commands) -> None:
    rows = pairs(3)
    agent.write("p.jsonl", rows[:2])
    assert agent("annotate", "p.jsonl", *OPTIONS).code == 0
    agent.write("p.jsonl", rows)
    more = agent("annotate", "p.jsonl", *OPTIONS, "--json")
    assert (more.code, more.json["pairs"], more.json["annotated_now"]) == (0, 3, 1)
    assert "number of pairs changed since this run began: 2 before, 3 now" in more.err
    agent.write("p.jsonl", [{**rows[0], "code": "x = 1"}, rows[2]])
    refused = agent("annotate", "p.jsonl", *OPTIONS)
    assert (refused.code, refused.out) == (2, "")
    assert re.search(r"^  1 .*'p1'\n  1 .*'p0' \(code\)\n", refused.err, re.M)
