"""Figures of an ablation, and the run that a report selects from an ablation folder."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent.errors import RunFolderError
from agent.evaluation.ablation_table import AblationTable
from agent.evaluation.ablation_text import as_document
from agent.views.comparison import build_ablation_figures
from agent.views.report import find_run

CALLS = {"requested": 9, "executed": 3, "shared": 4, "cached_before": 2, "if_run_alone": 8}
SHARES = ("coverage", "selective_accuracy", "precision", "recall", "f1", "kappa", "alpha", "agreement", "rounds_alpha")
MEANS = ("executed_share", "cases_per_program", "cost_per_pair")
COUNTS = (
    "repairs_per_pair",
    "calls_per_pair",
    "tokens_per_pair",
    "seconds_per_pair",
    "errors",
)


def make_row(variant: str, accuracy: float | None = 0.9, **fields: Any) -> dict[str, Any]:
    interval = None if accuracy is None else {"value": accuracy, "low": accuracy - 0.1, "high": accuracy + 0.05}
    names = {"variant": variant, "title": variant, "paper": None, "run": variant, "accuracy": interval, "mcnemar": None}
    return {**dict.fromkeys((*SHARES, *MEANS)), **dict.fromkeys(COUNTS, 0), **names, **fields}


def make_table(*rows: dict[str, Any], **fields: Any) -> AblationTable:
    setting = {"rounds": 1, "unlabelled": 0, "criterion": "exact", "model": "m", "note": None, "against": "full"}
    counts = {"gold": {"1": 22, "0": 18}, "calls": CALLS, "executions": {"requested": 9, "executed": 3}, "paid": {}}
    return AblationTable.model_validate({"pairs": 40, **setting, **counts, "rows": rows, **fields})


def compare_with(name: str = "full", **fields: Any) -> dict[str, Any]:
    test = {"against": name, "only_this_right": 1, "only_other_right": 3, "p": 0.6, "p_holm": 1.0, "note": None}
    return {**test, **fields}


def write_ablation(folder: Path, *variants: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ablation.json").write_text(json.dumps(as_document(make_table(*map(make_row, variants)))))
    return folder


def make_run(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    return folder


def test_accuracies_are_drawn_with_intervals_and_the_run_variant_is_highlighted() -> None:
    table = make_table(
        make_row("full"),
        make_row("ps_fa", 0.8, mcnemar=compare_with(note="too few")),
        make_row("none", None),
        note="scripted",
    )
    first, *others = build_ablation_figures(table, "ps_fa")
    assert first["chart"] is not None
    (trace,) = first["chart"]["traces"]
    assert trace["x"] == [0.9, 0.8]
    assert trace["marker"]["color"] == ["@accent-2", "@accent"]
    assert all(f"{value:.3f}" in first["chart"]["alt"] for value in (0.9, 0.8, 0.95))
    assert first["text"].startswith("scripted")
    assert re.findall(r"\d+", first["text"])[:3] == ["40", "22", "18"]
    assert [cells[:2] for cells in first["tables"][0]["rows"]] == [
        ["full", "0.900 [0.800, 0.950]"], ["ps_fa", "0.800 [0.700, 0.850]"], ["none", "–"]
    ]  # fmt: skip
    assert len(others) == 2
    test = others[0]["tables"][0]
    assert (test["rows"][1], test["numeric"]) == (["ps_fa", "1", "3", "0.6000", "1.0000", "too few"], [1, 2, 3, 4])


def test_an_ablation_folder_selects_the_full_run_or_the_first_existing_one(tmp_path: Path) -> None:
    folder = write_ablation(tmp_path / "out", "ps_fa", "full")
    with pytest.raises(RunFolderError, match=r"\(full, ps_fa, full\)"):
        find_run(folder)
    make_run(folder / "ps_fa")
    assert find_run(folder).run == folder / "ps_fa"
    make_run(folder / "full")
    source = find_run(folder)
    assert (source.run, source.title) == (folder / "full", "out/full")
    assert source.ablation is not None
    assert [row.variant for row in source.ablation.rows] == ["ps_fa", "full"]
    ps_fa = find_run(folder / "ps_fa")
    assert (ps_fa.run, ps_fa.title, ps_fa.ablation) == (folder / "ps_fa", "out/ps_fa", source.ablation)
    (folder / "manifest.json").write_text("{}")
    assert (find_run(folder).run, find_run(folder).title) == (folder, "out"), (
        "a run that contains its own ablation table"
    )
    source = find_run(make_run(tmp_path / "run"))
    assert (source.title, source.ablation) == ("run", None)


@pytest.mark.parametrize(
    "name", ["..", "../elsewhere", "/elsewhere", "", ".", "link", "inner/../..", "n" * 5000, "a\0b", "\ud800"]
)
def test_names_and_links_cannot_lead_out_of_an_ablation_folder(tmp_path: Path, name: str) -> None:
    around = make_run(tmp_path / "around")
    make_run(around / "elsewhere")
    folder = write_ablation(around / "ablation", name)
    (folder / "inner").mkdir()
    (folder / "link").symlink_to(around)
    with pytest.raises(RunFolderError, match=r"ablation\.json"):
        find_run(folder)
