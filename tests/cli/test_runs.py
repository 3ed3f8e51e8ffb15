"""`agent runs` lists (also damaged) runs, checks them and merges them."""

from __future__ import annotations

import json
import re

from tests.cli.commands import Commands, pairs
from tests.evaluation.runs import annotate, make_error, write_run


def test_runs_are_listed_with_state_labels_cost_and_model(agent: Commands) -> None:
    agent.write("p.jsonl", pairs(3))
    command = ("annotate", "p.jsonl", "--model", "heuristic", "--variant", "single_llm")
    agent(*command, "-o", "runs/whole")
    agent(*command, "-o", "runs/part", "--limit", "2", "--rounds", "2")
    rows = {row["run"]: row for row in agent("runs", "--json").json["runs"]}
    assert [(row["state"], row["annotated"], row["annotations"]) for row in rows.values()] == [
        ("unfinished", 4, 6),
        ("finished", 3, 3),
    ]
    row = rows["runs/whole"]
    assert sum(row["labels"].values()) == 3
    assert (row["cost_usd"], row["variant"], row["model"]) == (0.0, "single_llm", "heuristic")
    shown = agent("runs").out.splitlines()
    assert [line.split()[0] for line in shown] == ["run", "runs/part", "runs/whole"]
    assert "4 of 6" in shown[1]


def test_runs_of_an_ablation_are_listed_and_errors_are_counted(agent: Commands) -> None:
    write_run(agent.folder / "here/ablation/full", [annotate("a", 1), annotate("b", None), make_error("c")])
    (row,) = agent("runs", "here", "--json").json["runs"]
    assert (row["run"], row["labels"]) == ("here/ablation/full", {"1": 1, "0": 0, "null": 2})
    assert (row["undecided"], row["errors"]) == (1, 1)
    assert agent("runs", "here/ablation/full", "--json").json["runs"] == [row]


def test_damaged_runs_are_listed(agent: Commands) -> None:
    for name in ("a", "b", "c", "d"):
        write_run(agent.folder / "runs" / name, [annotate("x", 1)])
    (agent.folder / "runs/a/manifest.json").write_text("{")
    (agent.folder / "runs/b/manifest.json").unlink()
    (agent.folder / "runs/c/annotations.jsonl").write_text(json.dumps({"id": "\x1b[31m"}) + "\n")
    (agent.folder / "runs/e").mkdir()
    result = agent("runs", "--json")
    assert result.code == 0
    assert [row["state"] for row in result.json["runs"]] == ["damaged", "damaged", "damaged", "finished"]
    shown = agent("runs").out
    assert "runs/c/annotations.jsonl:1: " in shown
    assert "\x1b" not in shown


def test_folder_without_runs_is_empty(agent: Commands) -> None:
    (agent.folder / "empty").mkdir()
    assert agent("runs", "empty", "--json").json["runs"] == []
    assert agent("runs", "empty").out.count("\n") == 1
    agent.check_refused("runs: ", "runs")


def test_verify_reports_problems_with_exit_code_1(agent: Commands) -> None:
    agent.write("p.jsonl", pairs(3))
    for name, limit in (("whole", "3"), ("part", "2")):
        command = ("annotate", "p.jsonl", "--model", "heuristic", "--variant", "single_llm", "--limit", limit)
        agent(*command, "-o", f"runs/{name}")
    result = agent("runs", "verify", "runs/whole", "runs/part")
    assert (result.code, result.err) == (0, "")
    assert re.findall(r"^runs/(\w+):|(\d+)", result.out, re.M) == [
        ("whole", ""), ("", "3"), ("", "3"), ("part", ""), ("", "3"), ("", "2"), ("", "1"),
    ]  # fmt: skip

    with (agent.folder / "runs/whole/annotations.jsonl").open("a") as file:
        file.write(json.dumps({"id": "\x1b[31m"}) + "\n")
    result = agent("runs", "verify", "runs/whole")
    assert result.code == 1
    assert re.match(r"runs/whole: 1 .*\n  annotations\.jsonl: ", result.out)
    (findings,) = agent("runs", "verify", "runs/whole", "--json").json["runs"]
    (problem,) = findings["problems"]
    assert (findings["closed"], findings["counts"]) == (True, {"annotations.jsonl": 1})
    assert "annotations.jsonl:4: " in problem["what"]
    assert problem["remedy"]
    assert agent("runs", "verify", "nowhere").code == 2


def test_shards_are_merged_into_a_run_that_resumes(agent: Commands) -> None:
    rows = pairs(6)
    options = ("--model", "heuristic", "--variant", "single_llm")
    for name, shard in (("one", rows[:3]), ("two", rows[3:])):
        agent("annotate", agent.write(f"{name}.jsonl", shard), "-o", f"runs/{name}", "--limit", "2", *options)
    result = agent("runs", "merge", "runs/one", "runs/two", "-o", "runs/whole")
    assert (result.code, re.findall(r"\d+", result.out)) == (0, ["6", "4", "2"])
    for file in ("runs/whole/input.jsonl.gz", agent.write("all.jsonl", rows)):
        done = agent("annotate", file, "-o", "runs/whole", *options, "--json")
        assert done.code == 0
    assert re.findall(r"\d+", agent("runs", "verify", "runs/whole").out) == ["6", "6"]

    agent.check_refused("runs/whole: ", "runs", "merge", "runs/one", "runs/two", "-o", "runs/whole")
    (agent.folder / "runs/one").rename(agent.folder / "runs/.again.merging")
    assert len(agent("runs", "--json").json["runs"]) == 2
    (agent.folder / "runs/.again.merging").rename(agent.folder / "runs/one")
    merged = agent("runs", "merge", "runs/one", "runs/two", "-o", "runs/again", "--json").json
    assert merged == {"run": "runs/again", "pairs": 6, "annotations": 4, "left_out": []}
