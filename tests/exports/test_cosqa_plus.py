"""Tests that the CoSQA+ export has the files and fields of the CoSQA+ release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.datasets.reading import read_pairs
from agent.types import Pair
from tests.exports.runs import export_run, make_run


def read_files(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return {path.stem.removeprefix("test_agent_"): json.loads(path.read_bytes()) for path in folder.iterdir()}


def test_pairs_are_numbered_from_0_and_equal_texts_share_a_number(tmp_path: Path) -> None:
    pairs = [
        Pair(id="a", query="sort", code="one\ud800\n"),
        Pair(id="b", query="sort", code="two"),
        Pair(id="c", query="join", code="one\ud800\n"),
        Pair(id="d", query="read", code="three"),
    ]
    labels = {"a": {"label": 1}, "b": {"label": 0}, "c": {"label": 1}, "d": {"label": None}}
    export = export_run(make_run(tmp_path / "run", pairs, labels), "cosqa-plus", tmp_path / "out")
    files = read_files(tmp_path / "out")
    one = "one\\ud800\n"
    assert files["query"] == [{"query-idx": 0, "query": "sort"}, {"query-idx": 1, "query": "join"}]
    assert files["codebase"] == [{"code-idx": 0, "code": one}, {"code-idx": 1, "code": "two"}]
    assert files["pairs"] == [
        {"pair-idx": 0, "query-idx": 0, "query": "sort", "code-idx": 0, "code": one, "label": 1},
        {"pair-idx": 1, "query-idx": 0, "query": "sort", "code-idx": 1, "code": "two", "label": 0},
        {"pair-idx": 2, "query-idx": 1, "query": "join", "code-idx": 0, "code": one, "label": 1},
    ]
    assert files["pairs_true"] == [files["pairs"][0], files["pairs"][2]]
    assert export.left_out == {"without a label": 1}
    assert len(export.notes) == 1


def make_numbered_pairs(**changes: Any) -> list[Pair]:
    first = Pair(id="70", query="sort", code="one", meta={"query-idx": 5, "code-idx": 9, "label": 0})
    second = Pair(id="8", query="sort", code="two", meta={"query-idx": 5, "code-idx": 3, "label": 1})
    return [first, second.model_copy(update=changes)]


def test_indices_of_the_input_are_kept(tmp_path: Path) -> None:
    export_run(make_run(tmp_path / "run", make_numbered_pairs()), "cosqa-plus", tmp_path / "out")
    assert [list(pair.values()) for pair in read_files(tmp_path / "out")["pairs"]] == [
        [70, 5, "sort", 9, "one", 1],
        [8, 5, "sort", 3, "two", 1],
    ]
    pairs = list(read_pairs(tmp_path / "out/test_agent_pairs.json"))
    assert [(pair.id, pair.query, pair.code) for pair in pairs] == [("70", "sort", "one"), ("8", "sort", "two")]


@pytest.mark.parametrize(
    ("changes", "numbers"),
    [
        ({"id": "08"}, [[0, 5, 9], [1, 5, 3]]),
        ({"id": "9" * 5000}, [[0, 5, 9], [1, 5, 3]]),
        ({"meta": {"query-idx": "5", "code-idx": 3}}, [[70, 0, 9], [8, 0, 3]]),
        ({"meta": {"query-idx": 5, "code-idx": 9}}, [[70, 5, 0], [8, 5, 1]]),
        ({"query": "join"}, [[70, 0, 9], [8, 1, 3]]),
    ],
)
def test_invalid_or_ambiguous_indices_are_replaced(
    tmp_path: Path, changes: dict[str, Any], numbers: list[list[int]]
) -> None:
    export_run(make_run(tmp_path / "run", make_numbered_pairs(**changes)), "cosqa-plus", tmp_path / "out")
    files = read_files(tmp_path / "out")["pairs"]
    assert [[pair["pair-idx"], pair["query-idx"], pair["code-idx"]] for pair in files] == numbers


def test_without_matches_the_list_of_matches_is_empty(tmp_path: Path) -> None:
    export_run(make_run(tmp_path / "run", make_numbered_pairs(), {"label": 0}), "cosqa-plus", tmp_path / "out")
    assert read_files(tmp_path / "out")["pairs_true"] == []
