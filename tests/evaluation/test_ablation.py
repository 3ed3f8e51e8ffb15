"""Tests for selecting variants by name, by file and with nodes left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.errors import ConfigError, GraphError
from agent.evaluation.ablation import choose_criterion, choose_reference, choose_variants, make_folder_name
from agent.pipeline.graph import list_variants

PAPER = ["single_llm", "ps_fa", "ps_tpg_fa", "ps_tpg_sim_fa", "ps_tpg_te_fa", "full"]
JUDGE = "start: judge\nnodes:\n  judge: {decided: end}\n"


def test_all_variants_with_the_exact_criterion_are_compared_by_default_paper_variants_first() -> None:
    names = [variant.name for variant in choose_variants()]
    assert {*list_variants()} - {*names} == {"cosqa"}
    assert names[: len(PAPER)] == PAPER


def test_variants_keep_their_order_and_omit_named_nodes() -> None:
    names = ["full", "single_llm", "full-without-repair", "full-without-screen-without-repair"]
    chosen = choose_variants(names)
    assert [variant.name for variant in chosen] == names
    assert "repair" not in chosen[2].nodes
    assert chosen[3].start == "generate_test"


def test_a_file_name_may_contain_without(tmp_path: Path) -> None:
    path = tmp_path / "mine-without-doubt.yaml"
    path.write_text(JUDGE)
    assert [variant.name for variant in choose_variants([str(path)])] == ["mine-without-doubt"]


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        (["fulll"], ConfigError, "unknown variant 'fulll'"),
        (["full", ""], ConfigError, "--variants"),
        (["full", "full"], ConfigError, "'full'"),
        (["full-without-judge"], GraphError, "has no node 'judge'"),
        (["full-without-arbitrate"], GraphError, "'arbitrate'.*bypass"),
    ],
)
def test_invalid_variants_are_rejected(names: list[str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        choose_variants(names)


def test_variants_with_different_criteria_are_compared_only_by_a_named_criterion() -> None:
    chosen = choose_variants(["full", "cosqa"])
    with pytest.raises(ConfigError, match="--criterion"):
        choose_criterion(chosen, None)
    assert choose_criterion(chosen, "half") == choose_criterion(chosen[1:], None) == "half"


def test_the_reference_is_full_unless_another_is_named() -> None:
    chosen = choose_variants(["ps_fa", "full", "full-without-repair"])
    assert choose_reference(chosen) == "full"
    assert choose_reference(chosen, "full-without-repair") == "full-without-repair"
    assert choose_reference(chosen[:1]) is None
    with pytest.raises(ConfigError, match=r"--against single_llm: .*\(ps_fa, full, full-without-repair\)"):
        choose_reference(chosen, "single_llm")


@pytest.mark.parametrize("name", ["../../etc", "a/b", "..", "\x1b[31m", "=cmd()"])
def test_variant_names_cannot_escape_the_folder(tmp_path: Path, name: str) -> None:
    path = tmp_path / "v.yaml"
    path.write_text(f"name: {name!r}\n{JUDGE}")
    folder = make_folder_name(choose_variants([str(path)])[0])
    assert Path(folder).name == folder not in ("", ".", "..")


def test_variants_with_the_same_folder_are_rejected(tmp_path: Path) -> None:
    for number, name in enumerate(("a b", "A/b")):
        (tmp_path / f"{number}.yaml").write_text(f"name: {name!r}\n{JUDGE}")
    with pytest.raises(ConfigError, match="'A/b'"):
        choose_variants([str(tmp_path / "0.yaml"), str(tmp_path / "1.yaml")])


@pytest.mark.parametrize("name", ["ablation.json", "Ablation.CSV", "ablation.md.tmp", "/ablation.json"])
def test_names_of_output_files_are_reserved(tmp_path: Path, name: str) -> None:
    path = tmp_path / "v.yaml"
    path.write_text(f"name: {name!r}\n{JUDGE}")
    with pytest.raises(ConfigError, match=re.escape(repr(name))):
        choose_variants([str(path)])


def test_only_variants_that_write_tests_open_modules() -> None:
    names = ["full", "full-without-open_context", "ps_fa"]
    chosen = choose_variants(names, "module")
    assert [variant.name for variant in chosen] == names
    assert [variant.opens_context for variant in chosen] == [True, False, False]
