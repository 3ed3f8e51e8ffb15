"""`agent score` tells what labels are worth, for people and for programs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.commands import Commands
from tests.evaluation.runs import annotated, make_error, review, sample_of, write_run

HOSTILE = "\x1b\u202e:x:[b]"


def words(text: str) -> list[str]:
    """Return lines with white space folded."""
    return [" ".join(line.split()) for line in text.splitlines()]


def graded(agent: Commands) -> Path:
    """Make a run of 120 pairs of 40 queries, and gold for all but one; return the gold's path."""
    labels = {f"p{n}": int(n % 4 > 0) for n in range(120)}
    run = [
        annotated(pair, label, "passed" if n % 3 else "failed", None if n % 3 else "snippet", confidence=0.5 + n / 300)
        for n, (pair, label) in enumerate(labels.items())
    ]
    run[7] = make_error("p7")
    write_run(agent.folder / "run", run, {pair: f"q{n // 3}" for n, pair in enumerate(labels)})
    rows = [{"id": pair, "label": int(n % 5 > 0)} for n, pair in enumerate(labels) if n]
    return agent.write("gold.jsonl", rows)


def test_a_run_is_scored_against_gold(agent: Commands) -> None:
    ended = agent("score", "run", "--gold", graded(agent))
    assert ended.code == 0, ended.err
    lines = words(ended.out)
    assert lines[0] == ("run run: 119 pairs of 40 queries · 71 tp · 18 fp · 24 fn · 5 tn · 1 without a label")
    accuracy = next(line for line in lines if line.startswith("accuracy 0.639 0.549 to 0.719 "))
    assert accuracy.count(" to ") == 2
    for title in (
        "run: by what decided",
        "run: by test and cause",
        "run: by stand-ins",
        "run: confidence of 118 labels",
    ):
        assert any(line.startswith(title) for line in lines), title
    assert any(line.startswith("failed, but 1 ") for line in lines)
    assert any("1 pair failed (1 ModelError)" in line for line in lines)
    assert any(line.startswith("note: run: 1 pair not scored") for line in lines)


def test_json_holds_the_same(agent: Commands) -> None:
    gold = graded(agent)
    told = agent("score", "run", "--gold", gold, "--json", "--seed", "3").json
    scores = told["annotators"][0]["scores"]
    assert (scores["pairs"], scores["queries"], scores["seed"], scores["resamples"]) == (119, 40, 3, 2000)
    assert scores["confusion"] == {"tp": 71, "fp": 18, "fn": 24, "tn": 5, "null_positive": 1, "null_negative": 0}
    (run,) = told["runs"]
    assert {group["name"]: group["pairs"] for group in run["breakdown"]["overrides"]} == {
        "followed": 68,
        "failed, but 1": 30,
        "passed, but 0": 20,
    }
    assert sum(each["count"] for each in run["calibration"]["table"]) == run["calibration"]["labels"] == 118
    assert told["gold"] == {"path": "gold.jsonl", "labels": 119, "without_label": 0}
    assert told == agent("score", "run", "--gold", gold, "--json", "--seed", "3").json


def test_reviewers_are_compared_and_a_sample_of_theirs_estimates_the_run(agent: Commands) -> None:
    annotations = [annotated(f"p{n}", n % 2) for n in range(60)]
    run = write_run(agent.folder / "run", annotations)
    drawn = sample_of(run, annotations, ["decided_by", "label"], 30)
    review(run, "ann", {pair: int(pair[1:]) % 2 for pair in drawn[:28]})
    review(run, HOSTILE, dict.fromkeys(drawn[:5], 1))
    ended = agent("score", "run")
    assert ended.code == 0, ended.err
    assert "reviewers of run" in ended.out
    assert "run: estimates for all 60 pairs, from 30 sampled (" in ended.out
    assert "2 not yet" in ended.out
    assert re.search(r"^ +estimate +95% interval$", ended.out, re.MULTILINE)
    assert agent("score", "run", "--json").json["runs"][0]["estimates"]["level"] == 0.95
    assert not set("\x1b\u202e") & set(ended.out + ended.err)
    assert ":x:[b]" in ended.out


def test_what_was_said_in_sight_of_the_label_is_left_out_unless_it_is_asked_for(agent: Commands) -> None:
    annotations = [annotated(f"p{n}", n % 2) for n in range(60)]
    run = write_run(agent.folder / "run", annotations)
    drawn = sample_of(run, annotations, ["decided_by", "label"], 30)
    review(run, "ann", {**{pair: int(pair[1:]) % 2 for pair in drawn[:29]}, drawn[0]: None})
    review(run, "ann", {drawn[0]: 1, drawn[1]: 1, drawn[29]: 1}, blind=False)
    ended = agent("score", "run")
    assert "from 30 sampled (28 reviewed blind, 1 not yet, 1 undecided by its reviewer)" in ended.out
    assert "note: run: 3 reviews" in ended.out
    assert "(corrections of blind reviews: 2, no blind review: 1)" in ended.out
    told = agent("score", "run", "--json").json["runs"][0]
    assert (told["reviews"], told["reviews_left_out"], told["estimates"]["reviewed"]) == ("blind", 3, 28)
    last = agent("score", "run", "--reviews", "last")
    assert "from 30 sampled (30 reviewed, 0 not yet)" in last.out
    assert "note: run: 3 reviews" in last.out
    assert "--reviews last" not in last.out


def test_what_cannot_be_scored_is_told_before_anything(agent: Commands) -> None:
    agent.write("labels.jsonl", [{"id": "a", "label": 1}])
    agent.write("bad.jsonl", [{"id": "a", "label": 1}, {"id": "a", "label": 0}])
    for arguments, message in (
        (("gone.jsonl",), "gone.jsonl: no such file"),
        (("labels.jsonl",), "--gold GOLD"),
        (("labels.jsonl", "--gold", "labels.jsonl", "--round", "1"), "--round"),
        (("labels.jsonl", "--gold", "bad.jsonl"), "bad.jsonl:2: pair 'a'"),
        ((".",), "manifest.json"),
    ):
        ended = agent("score", *arguments)
        assert (ended.code, ended.out) == (2, ""), arguments
        assert message in ended.err
        assert "Traceback" not in ended.err


@pytest.mark.real_data
def test_the_voters_of_the_gold_have_the_alpha_that_is_told_of_them(agent: Commands, real_data: Path) -> None:
    gold = real_data / "gold_40.jsonl"
    told = agent("score", gold, "--json").json
    (agreement,) = told["agreement"]
    assert round(agreement["alpha"], 3) == 0.834
    assert [round(pair["agreement"], 3) for pair in agreement["pairwise"]] == [0.925, 0.925, 0.95]
    against = agent("score", gold, "--gold", gold, "--json").json
    accuracies = {each["name"]: each["scores"]["accuracy"] for each in against["annotators"]}
    assert accuracies == {"gold_40 vote 1": 0.95, "gold_40 vote 2": 0.975, "gold_40 vote 3": 0.975, "majority": 1.0}
    assert any("40 pairs are too few" in note for note in against["notes"])
