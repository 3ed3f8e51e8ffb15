"""`agent score` prints scores and agreement as tables and JSON."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.commands import Commands
from tests.evaluation.runs import add_reviews, annotate, draw_review_sample, make_error, write_run

HOSTILE = "\x1b\u202e:x:[b]"


def make_graded_run(agent: Commands) -> Path:
    """Create a run of 120 pairs of 40 queries, and gold labels for all but one. Return the gold file."""
    labels = {f"p{n}": int(n % 4 > 0) for n in range(120)}
    run = [
        annotate(pair, label, "passed" if n % 3 else "failed", None if n % 3 else "snippet")
        for n, (pair, label) in enumerate(labels.items())
    ]
    run[7] = make_error("p7")
    write_run(agent.folder / "run", run, {pair: f"q{n // 3}" for n, pair in enumerate(labels)})
    rows = [{"id": pair, "label": int(n % 5 > 0)} for n, pair in enumerate(labels) if n]
    return agent.write("gold.jsonl", rows)


def test_a_run_is_scored_against_gold(agent: Commands) -> None:
    result = agent("score", "run", "--gold", make_graded_run(agent))
    assert result.code == 0, result.err
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert re.match(r"run run: 119 pairs .*, 40 queries$", lines[0])
    assert {"1 71 24 1", "0 18 5 0"} < {*lines}
    accuracy = next(line for line in lines if line.startswith("accuracy 0.639 0.549 to 0.719 "))
    assert accuracy.count(" to ") == 2
    groupings = ("decided by", "evidence", "test", "stand-ins", "label and test")
    assert all(any(line.startswith(f"{name}: ") for line in lines) for name in groupings)
    notes = [line for line in lines[lines.index("Notes") :] if line.startswith("run: ")]
    assert [re.findall(r"\d+", note) for note in notes] == [["1", "1"], ["1"]]
    assert "1 ModelError" in notes[0]


def test_json_has_the_same_scores(agent: Commands) -> None:
    gold = make_graded_run(agent)
    document = agent("score", "run", "--gold", gold, "--json", "--seed", "3").json
    scores = document["annotators"][0]["scores"]
    assert (scores["pairs"], scores["queries"], scores["seed"], scores["resamples"]) == (119, 40, 3, 2000)
    assert scores["confusion"] == {"tp": 71, "fp": 18, "fn": 24, "tn": 5, "null_positive": 1, "null_negative": 0}
    (run,) = document["runs"]
    assert [group["pairs"] for group in run["breakdown"]["overrides"]] == [68, 30, 20]
    assert document["gold"] == {"path": "gold.jsonl", "labels": 119, "without_label": 0}
    assert document == agent("score", "run", "--gold", gold, "--json", "--seed", "3").json


def test_errors_are_listed_with_node_test_and_reason(agent: Commands) -> None:
    run = [annotate("a", 1, "passed", reason=HOSTILE), annotate("b", 0), annotate("c", 1), make_error("d")]
    write_run(agent.folder / "run", run)
    agent.write("gold.jsonl", [{"id": pair, "label": label} for pair, label in zip("abcd", (0, 1, 1, 1), strict=True)])
    (report,) = agent("score", "run", "--gold", "gold.jsonl", "--mistakes", "--json").json["runs"]
    listed = [(row["id"], row["gold"], row["label"], row["decided_by"], row["test"]) for row in report["mistakes"]]
    assert listed == [
        ("a", 0, 1, "arbitrate", "passed"),
        ("b", 1, 0, "screen", "no test"),
        ("d", 1, None, "error: ModelError", "no test"),
    ]
    shown = agent("score", "run", "--gold", "gold.jsonl", "--mistakes").out
    assert [line[0] for line in shown.splitlines() if re.match("[abcd]: ", line)] == ["a", "b", "d"]
    assert not set("\x1b\u202e") & set(shown)
    assert agent("score", "run", "--gold", "gold.jsonl", "--json").json["runs"][0]["mistakes"] is None
    agent.check_refused("--gold", "score", "run", "--mistakes")


def test_reviewed_sample_estimates_the_run(agent: Commands) -> None:
    annotations = [annotate(f"p{n}", n % 2) for n in range(60)]
    run = write_run(agent.folder / "run", annotations)
    sample = draw_review_sample(run, annotations, ["decided_by", "label"], 30)
    add_reviews(run, "ann", {pair: int(pair[1:]) % 2 for pair in sample[:28]})
    add_reviews(run, HOSTILE, dict.fromkeys(sample[:5], 1))
    result = agent("score", "run")
    assert result.code == 0, result.err
    estimates = agent("score", "run", "--json").json["runs"][0]["estimates"]
    assert (estimates["level"], estimates["run_pairs"], estimates["sampled"], estimates["pending"]) == (0.95, 60, 30, 2)
    assert re.search(r"^run: estimates for .*60 pairs, .*30 ", result.out, re.MULTILINE)
    assert not set("\x1b\u202e") & set(result.out + result.err)
    assert ":x:[b]" in result.out


def test_reviews_that_are_not_blind_are_excluded_by_default(agent: Commands) -> None:
    annotations = [annotate(f"p{n}", n % 2) for n in range(60)]
    run = write_run(agent.folder / "run", annotations)
    sample = draw_review_sample(run, annotations, ["decided_by", "label"], 30)
    add_reviews(run, "ann", {**{pair: int(pair[1:]) % 2 for pair in sample[:29]}, sample[0]: None})
    add_reviews(run, "ann", {sample[0]: 1, sample[1]: 1, sample[29]: 1}, blind=False)
    document = agent("score", "run", "--json").json["runs"][0]
    assert (document["reviews"], document["reviews_left_out"]) == ("blind", 3)
    estimates = document["estimates"]
    assert [estimates[name] for name in ("sampled", "reviewed", "pending", "undecided")] == [30, 28, 1, 1]
    notes = [line for line in agent("score", "run").out.splitlines() if re.match(r"run: \D*\b3 reviews\b", line)]
    assert [re.findall(r"\d+", note) for note in notes] == [["3", "2", "1"]]
    last = agent("score", "run", "--reviews", "last", "--json").json
    estimates = last["runs"][0]["estimates"]
    assert [estimates[name] for name in ("sampled", "reviewed", "pending", "undecided")] == [30, 30, 0, 0]
    assert any(re.match(r"run: \D*\b3 reviews\b", note) for note in last["notes"])


def test_invalid_input_is_rejected(agent: Commands) -> None:
    agent.write("labels.jsonl", [{"id": "a", "label": 1}])
    agent.write("bad.jsonl", [{"id": "a", "label": 1}, {"id": "a", "label": 0}])
    for arguments, message in (
        (("gone.jsonl",), "gone.jsonl: "),
        (("labels.jsonl",), "--gold"),
        (("labels.jsonl", "--gold", "labels.jsonl", "--round", "1"), "--round"),
        (("labels.jsonl", "--gold", "bad.jsonl"), "bad.jsonl:2: "),
        ((".",), ".: "),
    ):
        agent.check_refused(message, "score", *arguments)


@pytest.mark.real_data
def test_gold_voters_have_the_published_alpha(agent: Commands, real_data: Path) -> None:
    gold = real_data / "gold_40.jsonl"
    document = agent("score", gold, "--json").json
    (agreement,) = document["agreement"]
    assert round(agreement["alpha"], 3) == 0.834
    assert [round(pair["agreement"], 3) for pair in agreement["pairwise"]] == [0.925, 0.925, 0.95]
    against = agent("score", gold, "--gold", gold, "--json").json
    accuracies = {row["name"]: row["scores"]["accuracy"] for row in against["annotators"]}
    assert accuracies == {"gold_40 vote 1": 0.95, "gold_40 vote 2": 0.975, "gold_40 vote 3": 0.975, "majority": 1.0}
    assert any("40 pairs" in note for note in against["notes"])
