"""Two-step annotation in three rounds (CoSQA paper, section 3.2), from the calls to the export and the scores."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from tests.cli.commands import Commands, pairs, reply
from tests.llm.server import Answer, ChatServer, Request
from tests.scripts import label

VOTES = ["111", "000", "110", "100", "nnn", "n11"]
"""The answers about each pair in its rounds. `n` means that the query has no search intent."""


class Annotators:
    """A server whose answers change from round to round. It knows rounds only by the repetition of a request."""

    def __init__(self) -> None:
        self.seen = Counter[tuple[int, bool]]()

    def __call__(self, request: Request) -> Answer:
        number = int(re.search(r"way (\d)\n", request.prompt)[1])  # type: ignore[index]
        judges = "add(a, b)" in request.prompt
        votes = VOTES[number].replace("n", "") if judges else VOTES[number]
        vote = votes[self.seen[number, judges]]
        self.seen[number, judges] += 1
        return reply(
            label(int(vote)) if judges else json.dumps({"reason": "", "intent": "no" if vote == "n" else "yes"})
        )


@pytest.fixture
def summary(agent: Commands) -> dict[str, object]:
    """The summary of a run with three rounds."""
    options = ("--variant", "cosqa", "--rounds", "3", "--concurrency", "1", "--temperature", "1", "-o", "run", "--json")
    with ChatServer(Annotators()) as server:
        file = agent.write("p.jsonl", pairs(len(VOTES)))
        result = agent("annotate", file, "--model", "m", "--base-url", server.url, *options)
        assert len(server.requests) == 3 * 6 + 14
    assert result.code == 0, result.err
    return dict(result.json)


def test_pairs_without_search_intent_are_counted_apart(agent: Commands, summary: dict[str, object]) -> None:
    counts = {"labels": {"1": 3, "0": 2, "null": 1}, "no_intent": 1, "undecided": 0, "errors": {}}
    assert {name: summary[name] for name in counts} == counts
    (row,) = agent("runs", "list", "run", "--json").json["runs"]
    assert {name: row[name] for name in counts} == {**counts, "errors": 0}
    for options in (("beir",), ("csv", "--label", "0", "--label", "1")):
        exported = agent("export", "run", "--json", "--to", *options).json
        assert (exported["pairs"], exported["left_out"]) == (5, {"without search intent": 1})
    statuses = [json.loads(line)["status"] for line in (agent.folder / "run/labels.jsonl").read_text().splitlines()]
    assert statuses == ["1", "0", "1", "0", "no_intent", "1"]


@pytest.mark.usefixtures("summary")
def test_pairs_whose_rounds_disagree_are_removed_and_alpha_is_reported_before_and_after(agent: Commands) -> None:
    for share, ids in (("1", "014"), ("0.7", "014"), ("0.6", "012345")):
        document = agent("export", "run", "--to", "jsonl", "--force", "--min-agreement", share, "--json").json
        rows = [json.loads(line) for line in (agent.folder / "run/export.jsonl").read_text().splitlines()]
        assert "".join(row["id"][1:] for row in rows) == ids
        assert (document["no_intent"], sum(document["left_out"].values())) == (1, 6 - len(ids))
    before, after = agent("score", "run", "--min-agreement", "1", "--json").json["agreement"]
    # 8 of 14 labels are 1; the labels of p2 and p3 differ, which adds 2 coincidences each
    assert before["alpha"] == pytest.approx(1 - 13 * 4 / (2 * 8 * 6))
    assert (after["alpha"], before["comparable"], after["comparable"]) == (1.0, 5, 2)


def test_one_round_cannot_disagree(agent: Commands) -> None:
    agent("annotate", agent.write("p.jsonl", pairs(1)), "--model", "heuristic", "--variant", "cosqa", "-o", "run")
    for command in (("export", "run", "--to", "csv"), ("score", "run"), ("score", "run", "--round", "0")):
        assert agent(*command, "--min-agreement", "1").code == 2
