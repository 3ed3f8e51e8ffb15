"""Two-step annotation in three rounds (CoSQA paper, section 3.2), from the calls to the export and the scores."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.commands import Commands, pairs, reply
from tests.exports.runs import read_lines
from tests.llm.server import Answer, ChatServer, Request, Respond
from tests.scripts import label

VOTES = ["111", "000", "110", "100", "nnn", "n11"]
"""The answers about each pair in its rounds. `n` means that the query has no search intent."""


def answer_rounds() -> Respond:
    """Return a script that answers differently from round to round. It knows rounds only by repeated requests."""
    intents, labels = list(map(iter, VOTES)), [iter(votes.replace("n", "")) for votes in VOTES]

    def respond(request: Request) -> Answer:
        number = int(re.findall(r"way (\d)\n", request.prompt)[0])
        if "add(a, b)" in request.prompt:
            return reply(label(int(next(labels[number]))))
        return reply(json.dumps({"reason": "", "intent": "no" if next(intents[number]) == "n" else "yes"}))

    return respond


def test_missing_search_intent_is_counted_apart_and_pairs_whose_rounds_disagree_are_removed(agent: Commands) -> None:
    options = ("--variant", "cosqa", "--rounds=3", "--concurrency=1", "-c", "temperature=1", "-o", "run", "--json")
    with ChatServer(answer_rounds()) as server:
        file = agent.write("p.jsonl", pairs(len(VOTES)))
        result = agent("annotate", file, "--model", "m", "--base-url", server.url, *options)
    assert (result.code, len(server.requests)) == (0, 3 * 6 + 14), result.err
    counts = {"labels": {"1": 3, "0": 2, "null": 1}, "no_intent": 1, "undecided": 0, "errors": {}}
    assert {name: result.json[name] for name in counts} == counts
    (row,) = agent("runs", "list", "run", "--json").json["runs"]
    assert {name: row[name] for name in counts} == {**counts, "errors": 0}
    for target in (("beir",), ("csv", "--label", "0", "--label", "1")):
        exported = agent("export", "run", "--json", "--to", *target).json
        assert (exported["pairs"], exported["left_out"]) == (5, {"without search intent": 1})
    statuses = [row["status"] for row in read_lines(agent.folder / "run/labels.jsonl")]
    assert statuses == ["1", "0", "1", "0", "no_intent", "1"]
    for share, ids in (("1", "014"), ("0.7", "014"), ("0.6", "012345")):
        document = agent("export", "run", "--to", "jsonl", "--force", "--min-agreement", share, "--json").json
        assert "".join(row["id"][1:] for row in read_lines(agent.folder / "run/export.jsonl")) == ids
        assert (document["no_intent"], sum(document["left_out"].values())) == (1, 6 - len(ids))
    before, after = agent("score", "run", "--min-agreement", "1", "--json").json["agreement"]
    # 8 of 14 labels are 1; the labels of p2 and p3 differ, which adds 2 coincidences each
    assert before["alpha"] == pytest.approx(1 - 13 * 4 / (2 * 8 * 6))
    assert (after["alpha"], before["comparable"], after["comparable"]) == (1.0, 5, 2)


def test_one_round_cannot_disagree(agent: Commands) -> None:
    agent("annotate", agent.write("p.jsonl", pairs(1)), "--model", "heuristic", "--variant", "cosqa", "-o", "run")
    for command in (("export", "run", "--to", "csv"), ("score", "run"), ("score", "run", "--round", "0")):
        assert agent(*command, "--min-agreement", "1").code == 2
