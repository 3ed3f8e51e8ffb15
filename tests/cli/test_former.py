"""Commands read the run folders of the former version. See `tests/runs/store/former/README.md`."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.cli.commands import ROOT, Commands

LABELS = {"vacuous": 1, "sound": 1, "flaky": 0, "open": None}


@pytest.fixture(autouse=True)
def _folders(agent: Commands) -> None:
    shutil.copytree(ROOT / "tests/runs/store/former", agent.folder, dirs_exist_ok=True)
    agent.write("gold.jsonl", [{"id": name, "label": 1} for name in (*LABELS, "even")])


def test_a_vacuous_test_is_not_shown_or_scored_as_passed(agent: Commands) -> None:
    assert "proves nothing" in agent("show", "full_plus", "vacuous").out
    groups = agent("score", "full_plus", "--gold", "gold.jsonl", "--json").json["runs"][0]["breakdown"]["tests"]
    assert {group["name"]: group["pairs"] for group in groups} == {
        "error: program": 2,
        "error: snippet": 1,
        "passed": 1,
    }


@pytest.mark.parametrize("run", ["full", "full_plus", "ablation/full_plus"])
def test_former_runs_can_be_verified_merged_exported_and_reported(agent: Commands, run: str) -> None:
    assert agent("runs", "merge", run, "-o", "merged").code == 0
    for folder in (run, "merged"):
        assert agent("runs", "verify", folder).code == 0
        assert agent("report", folder, "--gold", "gold.jsonl", "-o", f"{folder}.html").code == 0
    assert agent("export", run, "--to", "jsonl", "-o", "out.jsonl").code == 0
    exported = [json.loads(line) for line in (agent.folder / "out.jsonl").read_text("utf-8").splitlines()]
    assert run != "full_plus" or {pair["id"]: pair["label"] for pair in exported} == LABELS


def test_the_former_ablation_is_reported(agent: Commands) -> None:
    assert agent("report", "ablation", "-o", "ablation.html").code == 0
