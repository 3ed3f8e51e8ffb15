"""The table of an ablation beside a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.errors import RunFolderError
from agent.evaluation.ablation_table import AblationTable
from agent.evaluation.ablation_text import as_document, read_ablation, write_table
from agent.views.ablation import blocks
from agent.views.places import find_run

CALLS = {"asked": 9, "made": 3, "shared": 4, "earlier": 2, "separate": 8}
SHARES = ("coverage", "selective_accuracy", "precision", "recall", "f1", "kappa", "alpha", "agreement", "rounds_alpha")
MEANS = ("executed_share", "cases_per_program", "mean_strength", "cost_per_pair", "seconds_per_pair")
COUNTS = ("tests_checked", "tests_vacuous", "repairs_per_pair", "calls_per_pair", "tokens_per_pair", "errors")


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


def test_accuracies_are_drawn_with_their_intervals_and_the_shown_variant_stands_out() -> None:
    found = table_of(row("full"), row("ps_fa", 0.8), row("none", None))
    drawn, effort = blocks(found, "ps_fa")
    assert drawn["chart"] is not None
    (trace,) = drawn["chart"]["traces"]
    assert trace["x"] == [0.9, 0.8]
    assert trace["marker"]["color"] == ["@accent-2", "@accent"]
    assert "full 0.900, 0.800 to 0.950" in drawn["chart"]["alt"]
    assert [cells[:2] for cells in drawn["tables"][0]["rows"]] == [
        ["full", "0.900 (0.800–0.950)"], ["ps_fa", "0.800 (0.700–0.850)"], ["none", "–"]
    ]  # fmt: skip
    assert [cells[0] for cells in effort["tables"][0]["rows"]] == ["full", "ps_fa", "none"]


def test_a_variant_against_full_has_its_counts_p_and_note() -> None:
    drawn = blocks(table_of(row("ps_fa", mcnemar=against(note="too few")), note="scripted"))[0]
    assert drawn["tables"][0]["rows"][0][-1] == "1 : 3, p = 1 (Holm); too few"
    assert drawn["text"].startswith("scripted 40 pairs (22 labelled 1, 18 labelled 0)")
    assert drawn["tables"][0]["columns"][-1] == "against full"


def test_the_variant_compared_with_is_named_and_without_tests_there_is_no_column() -> None:
    table = blocks(table_of(row("full", mcnemar=against("ps_fa"))))[0]["tables"][0]
    assert (table["columns"][-1], table["rows"][0][-1]) == ("against ps_fa", "1 : 3, p = 1 (Holm)")
    assert "against" not in str(blocks(table_of(row("full")))[0]["tables"][0]["columns"])


def test_what_was_tried_on_wrong_code_has_a_table_where_any_was() -> None:
    checked = {"tests_checked": 22, "tests_vacuous": 18, "mean_strength": 0.34}
    rows = row("full", tests_checked=0, tests_vacuous=0), row("full_plus", **checked)
    _effort, checked = blocks(table_of(*rows))[1]["tables"]
    assert checked["columns"] == ["variant", "tests tried on wrong code", "prove nothing", "mean strength"]
    assert checked["rows"] == [["full_plus", "22", "18", "0.34"]]
    assert len(blocks(table_of(row("full")))[1]["tables"]) == 1


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


def test_a_run_of_an_ablation_has_its_table_and_another_run_has_none(tmp_path: Path) -> None:
    folder = write(tmp_path / "out", "full")
    found = find_run(make_run(folder / "ps_fa"))
    assert (found.run, found.title, found.ablation is not None) == (folder / "ps_fa", "out/ps_fa", True)
    alone = find_run(make_run(tmp_path / "run"))
    assert (alone.title, alone.ablation) == ("run", None)


def test_a_run_with_a_table_of_its_own_is_itself(tmp_path: Path) -> None:
    folder = write(make_run(tmp_path / "run"), "full")
    make_run(folder / "full")
    found = find_run(folder)
    assert (found.run, found.title) == (folder, "run")


@pytest.mark.parametrize("name", ["../elsewhere", "/elsewhere", ".."])
def test_a_variants_name_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    make_run(tmp_path / "elsewhere")
    folder = write(tmp_path / "out", name)
    with pytest.raises(RunFolderError, match="none of its runs"):
        find_run(folder)


@pytest.mark.parametrize(("content", "told"), [
    ("{", "is damaged"), ("[]", "is damaged"), ('{"schema": 2}', "has schema 2"),
    ('{"schema": 1, "pairs": "x"}', "pairs"),
])  # fmt: skip
def test_a_table_that_cannot_be_read_is_told(tmp_path: Path, content: str, told: str) -> None:
    (tmp_path / "ablation.json").write_text(content)
    with pytest.raises(RunFolderError, match=told):
        read_ablation(tmp_path / "ablation.json")


def test_what_agent_ablate_writes_is_read(tmp_path: Path) -> None:
    table = table_of(row("ps_fa", agreement=0.965, rounds_alpha=0.9, mcnemar=against()))
    write_table(tmp_path, table)
    found = read_ablation(tmp_path / "ablation.json")
    assert found == table
    drawn, effort = blocks(found)
    assert drawn["tables"][1]["rows"] == [["ps_fa", "0.965", "0.900"]]
    assert "Of 9 questions, 3 went to a model" in effort["text"]


@pytest.mark.parametrize("name", ["..", "", ".", "link", "inner/../..", "n" * 5000, "a\0b", "\ud800"])
def test_neither_a_name_nor_a_link_leads_to_the_run_around_an_ablation(tmp_path: Path, name: str) -> None:
    around = make_run(tmp_path / "around")
    folder = write(around / "ablation", name)
    (folder / "inner").mkdir()
    (folder / "link").symlink_to(around)
    with pytest.raises(RunFolderError, match="none of its runs"):
        find_run(folder)
