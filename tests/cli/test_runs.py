"""`agent runs` lists what lies in a folder of runs, damaged ones too, checks and merges them."""

from __future__ import annotations

import json

from tests.cli.commands import Commands, pairs
from tests.evaluation.runs import annotated, make_error, write_run


def test_each_run_has_its_state_its_labels_its_cost_and_what_made_it(agent: Commands) -> None:
    agent.write("p.jsonl", pairs(3))
    annotate = ("annotate", "p.jsonl", "--model", "heuristic", "--variant", "single_llm")
    agent(*annotate, "-o", "runs/whole")
    agent(*annotate, "-o", "runs/part", "--limit", "2", "--rounds", "2")
    found = {row["run"]: row for row in agent("runs", "--json").json["runs"]}
    assert [(row["state"], row["annotated"], row["annotations"]) for row in found.values()] == [
        ("unfinished", 4, 6),
        ("finished", 3, 3),
    ]
    whole = found["runs/whole"]
    assert sum(whole["labels"].values()) == 3
    assert (whole["cost_usd"], whole["variant"], whole["model"]) == (0.0, "single_llm", "heuristic")
    shown = agent("runs").out.splitlines()
    assert [line.split()[0] for line in shown] == ["run", "runs/part", "runs/whole"]
    assert "unfinished, 4 of 6" in shown[1]


def test_runs_of_an_ablation_are_listed_and_errors_are_counted(agent: Commands) -> None:
    write_run(agent.folder / "here/ablation/full", [annotated("a", 1), annotated("b", None), make_error("c")])
    (row,) = agent("runs", "here", "--json").json["runs"]
    assert (row["run"], row["labels"]) == ("here/ablation/full", {"1": 1, "0": 0, "null": 2})
    assert (row["undecided"], row["errors"]) == (1, 1)
    assert agent("runs", "here/ablation/full", "--json").json["runs"] == [row]


def test_a_damaged_run_is_a_row(agent: Commands) -> None:
    for name in ("a", "b", "c", "d"):
        write_run(agent.folder / "runs" / name, [annotated("x", 1)])
    (agent.folder / "runs/a/manifest.json").write_text("{")
    (agent.folder / "runs/b/manifest.json").unlink()
    (agent.folder / "runs/c/annotations.jsonl").write_text(json.dumps({"id": "\x1b[31m"}) + "\n")
    (agent.folder / "runs/e").mkdir()
    ended = agent("runs", "--json")
    assert ended.code == 0
    assert [row["state"] for row in ended.json["runs"]] == ["damaged", "damaged", "damaged", "finished"]
    shown = agent("runs").out
    assert "runs/c/annotations.jsonl:1: is not an annotation" in shown
    assert "\x1b" not in shown


def test_a_folder_without_runs_says_so(agent: Commands) -> None:
    (agent.folder / "empty").mkdir()
    assert agent("runs", "empty").out == "empty holds no runs\n"
    ended = agent("runs")
    assert (ended.code, ended.out) == (2, "")
    assert "runs: no such folder" in ended.err


def test_runs_are_checked_and_problems_are_an_exit_code(agent: Commands) -> None:
    agent.write("p.jsonl", pairs(3))
    for name, limit in (("whole", "3"), ("part", "2")):
        command = ("annotate", "p.jsonl", "--model", "heuristic", "--variant", "single_llm", "--limit", limit)
        agent(*command, "-o", f"runs/{name}")
    ended = agent("runs", "verify", "runs/whole", "runs/part")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("runs/whole: fine\n  3 pairs, 3 annotations\n")
    assert "runs/part: fine\n  3 pairs, 2 annotations, 1 still to do\n" in ended.out

    with (agent.folder / "runs/whole/annotations.jsonl").open("a") as file:
        file.write(json.dumps({"id": "\x1b[31m"}) + "\n")
    ended = agent("runs", "verify", "runs/whole")
    assert ended.code == 1
    assert ended.out.startswith("runs/whole: 1 problem\n  annotations.jsonl: ")
    (found,) = agent("runs", "verify", "runs/whole", "--json").json["runs"]
    (problem,) = found["problems"]
    assert (found["closed"], found["counts"]) == (True, {"annotations.jsonl": 1})
    assert "annotations.jsonl:4: is not an annotation" in problem["what"]
    assert problem["remedy"]
    assert agent("runs", "verify", "nowhere").code == 2


def test_shards_are_merged_into_a_run_that_goes_on_with_the_merged_input(agent: Commands) -> None:
    rows = pairs(6)
    how = ("--model", "heuristic", "--variant", "single_llm")
    for name, shard in (("one", rows[:3]), ("two", rows[3:])):
        agent("annotate", agent.write(f"{name}.jsonl", shard), "-o", f"runs/{name}", "--limit", "2", *how)
    ended = agent("runs", "merge", "runs/one", "runs/two", "-o", "runs/whole")
    assert (ended.code, ended.out) == (0, "runs/whole: 6 pairs, 4 annotations of 2 runs\n")
    for file in ("runs/whole/input.jsonl.gz", agent.write("all.jsonl", rows)):
        done = agent("annotate", file, "-o", "runs/whole", *how, "--json")
        assert done.code == 0
    assert agent("runs", "verify", "runs/whole").out.startswith("runs/whole: fine\n  6 pairs, 6 annotations\n")

    refused = agent("runs", "merge", "runs/one", "runs/two", "-o", "runs/whole")
    assert (refused.code, "runs/whole: " in refused.err) == (2, True)
    (agent.folder / "runs/one").rename(agent.folder / "runs/.again.merging")
    assert len(agent("runs", "--json").json["runs"]) == 2
    (agent.folder / "runs/.again.merging").rename(agent.folder / "runs/one")
    merged = agent("runs", "merge", "runs/one", "runs/two", "-o", "runs/again", "--json").json
    assert merged == {"run": "runs/again", "pairs": 6, "annotations": 4, "left_out": []}
