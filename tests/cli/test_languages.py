"""Pairs in several languages are annotated in one command, and `agent replay` reproduces their tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.datasets.mutants import read_contrasts
from agent.languages.registry import Languages
from tests.cli.commands import ADD, ROOT, Commands
from tests.scripts import PROGRAM, label, program, screen

pytestmark = [pytest.mark.bwrap, pytest.mark.node]

CHOSEN = {"limit": "right", "windows": "wrong", "queue": "right", "bosses": "wrong"}


@pytest.fixture
def labels(agent: Commands) -> dict[str, int]:
    """The labels of the pairs in the file `pairs.jsonl`. `replies.jsonl` has the model's replies."""
    lines = (ROOT / "tests/languages/pairs.jsonl").read_text("utf-8").splitlines()
    tasks = [task for task in map(json.loads, lines) if task["id"] in CHOSEN]
    tasks.append({"id": "add", "language": "python", "query": "add", "right": ADD, "program": PROGRAM})
    pairs, replies, labels = [], list[dict[str, Any]](), dict[str, int]()
    for task in tasks:
        name, language, kind = task["id"], Languages()[task["language"]], CHOSEN.get(task["id"], "right")
        labels[name] = int(kind == "right")
        pairs.append({"id": name, "query": task["query"], "code": task[kind], "language": language.name})
        written = program(task["program"], fence=language.program_fence or language.fence)
        by_role = {"screen": screen(), "generate_test": written}
        by_role |= dict.fromkeys(("arbitrate", "judge"), label(labels[name]))
        replies += [{"pair": name, "role": role, "reply": reply} for role, reply in by_role.items()]
    agent.write("pairs.jsonl", pairs)
    agent.write("replies.jsonl", replies)
    return labels


def test_pairs_of_four_languages_are_tested_replayed_and_mutated(agent: Commands, labels: dict[str, int]) -> None:
    options = ("--model", "replay:replies.jsonl", "--sandbox", "bwrap", "-o", "run")
    result = agent.start("annotate", "pairs.jsonl", *options).wait(200)
    assert result.code == 0, result.err
    annotations = list(map(json.loads, (agent.folder / "run/annotations.jsonl").read_text("utf-8").splitlines()))
    assert {one["id"]: one["label"] for one in annotations} == labels
    assert {one["id"]: one["test"]["status"] == "passed" for one in annotations} == labels
    replay = agent("replay", "run", "--json")
    assert (replay.code, replay.json["same"], replay.json["different"]) == (0, 5, 0), replay.err
    mutants = agent("corpus", "mutate", "run", "-o", "mutants.jsonl", "--mutants", "4", "--json")
    assert (mutants.code, mutants.json["killed"] > 0) == (0, True), mutants.err
    killed = {(contrast.language, contrast.mutant.check) for contrast in read_contrasts(agent.folder / "mutants.jsonl")}
    assert killed == {(language, "program") for language in ("javascript", "python", "typescript")}
