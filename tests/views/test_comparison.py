"""The table of an ablation beside a run, and the run that an ablation's folder stands for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.errors import RunFolderError
from agent.evaluation.ablation_table import AblationTable
from agent.evaluation.ablation_text import as_document
from agent.views.comparison import build_ablation_figures
from agent.views.report import find_run

CALLS = {"asked": 9, "made": 3, "shared": 4, "earlier": 2, "separate": 8}
SHARES = ("coverage", "selective_accuracy", "precision", "recall", "f1", "kappa", "alpha", "agreement", "rounds_alpha")
MEANS = ("executed_share", "cases_per_program", "mean_strength", "cost_per_pair")
COUNTS = (
    "tests_checked",
    "tests_vacuous",
    "repairs_per_pair",
    "calls_per_pair",
    "tokens_per_pair",
    "seconds_per_pair",
    "errors",
)


def row(variant: str, accuracy: float | None = 0.9, **fields: Any) -> dict[str, Any]:
    found = None if accuracy is None else {"value": accuracy, "low": accuracy - 0.1, "high": accuracy + 0.05}
    names = {"variant": variant, "title": variant, "paper": None, "run": variant, "accuracy": found, "mcnemar": None}
    return {**dict.fromkeys((*SHARES, *MEANS)), **dict.fromkeys(COUNTS, 0), **names, **fields}


def table_of(*rows: dict[str, Any], **fields: Any) -> AblationTable:
    setting = {"rounds": 1, "unlabelled": 0, "criterion": "exact", "model": "m", "note": None, "against": "full"}
    counts = {"gold": {"1": 22, "0": 18}, "calls": CALLS, "executions": {"asked": 9, "made": 3}, "paid": {}}
    return AblationTable.model_validate({"pairs": 40, **setting, **counts, "rows": rows, **fields})


def against(name: str = "full", **fields: Any) -> dict[str, Any]:
    test = {"against": name, "only_this_right": 1, "only_other_right": 3, "p": 0.6, "p_holm": 1.0, "note": None}
    return {**test, **fields}


def write(folder: Path, *variants: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ablation.json").write_text(json.dumps(as_document(table_of(*map(row, variants)))))
    return folder


def make_run(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    return folder


def test_accuracies_are_drawn_with_their_intervals_and_the_own_variant_stands_out() -> None:
    found = table_of(
        row("full"), row("ps_fa", 0.8, mcnemar=against(note="too few")), row("none", None), note="scripted"
    )
    first, *others = build_ablation_figures(found, "ps_fa")
    assert first["chart"] is not None
    (trace,) = first["chart"]["traces"]
    assert trace["x"] == [0.9, 0.8]
    assert trace["marker"]["color"] == ["@accent-2", "@accent"]
    assert "full 0.900, 0.800 to 0.950" in first["chart"]["alt"]
    assert first["text"].startswith("scripted 40 pairs; gold labels: 22 match and 18 no match")
    assert "Of 9 requested calls, 3 went to a model" in first["text"]
    assert [cells[:2] for cells in first["tables"][0]["rows"]] == [
        ["full", "0.900 [0.800, 0.950]"], ["ps_fa", "0.800 [0.700, 0.850]"], ["none", "–"]
    ]  # fmt: skip
    assert [each["title"].split(" (")[0] for each in others] == [
        "Pairs that only one variant labels correctly", "Standalone cost of each variant"
    ]  # fmt: skip
    test = others[0]["tables"][0]
    assert (test["rows"][1], test["numeric"]) == (["ps_fa", "1", "3", "0.6000", "1.0000", "too few"], [1, 2, 3, 4])


def test_an_ablations_folder_stands_for_its_full_run_else_the_first_that_is_there(tmp_path: Path) -> None:
    folder = write(tmp_path / "out", "ps_fa", "full")
    with pytest.raises(RunFolderError, match="none of its runs"):
        find_run(folder)
    make_run(folder / "ps_fa")
    assert find_run(folder).run == folder / "ps_fa"
    make_run(folder / "full")
    found = find_run(folder)
    assert (found.run, found.title) == (folder / "full", "out/full")
    assert found.ablation is not None
    assert [each.variant for each in found.ablation.rows] == ["ps_fa", "full"]
    other = find_run(folder / "ps_fa")
    assert (other.run, other.title, other.ablation) == (folder / "ps_fa", "out/ps_fa", found.ablation)
    (folder / "manifest.json").write_text("{}")
    assert (find_run(folder).run, find_run(folder).title) == (folder, "out"), "a run with a table of its own"
    alone = find_run(make_run(tmp_path / "run"))
    assert (alone.title, alone.ablation) == ("run", None)


@pytest.mark.parametrize(
    "name", ["..", "../elsewhere", "/elsewhere", "", ".", "link", "inner/../..", "n" * 5000, "a\0b", "\ud800"]
)
def test_neither_a_name_nor_a_link_leads_to_the_run_around_an_ablation(tmp_path: Path, name: str) -> None:
    around = make_run(tmp_path / "around")
    make_run(around / "elsewhere")
    folder = write(around / "ablation", name)
    (folder / "inner").mkdir()
    (folder / "link").symlink_to(around)
    with pytest.raises(RunFolderError, match="none of its runs"):
        find_run(folder)
