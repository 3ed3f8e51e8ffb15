"""Gold is read as it is meant, and what is unclear is told with file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.errors import InputError
from agent.evaluation.labels import read_gold
from tests.evaluation.runs import write_lines


def test_gold_has_labels_queries_and_pairs_without_label(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "a", "label": 1, "query": "q", "votes": [1, 1, 0]},
        {"id": "b", "label": None},
        {"id": 7, "label": 0},
    ]
    for path in (write_lines(tmp_path / "g.jsonl", rows), tmp_path / "g.json"):
        if path.suffix == ".json":
            path.write_text(json.dumps(rows))
        gold = read_gold(path)
        assert gold.labels == {"a": 1, "7": 0}
        assert gold.queries == {"a": "q"}
        assert gold.without_label == 1


def test_gold_of_known_datasets_is_read_as_it_is(tmp_path: Path) -> None:
    cosqa = read_gold(write_lines(tmp_path / "c.jsonl", [{"idx": "cosqa-dev-1", "doc": "q", "code": "x", "label": 1}]))
    assert (cosqa.labels, cosqa.queries) == ({"cosqa-dev-1": 1}, {"cosqa-dev-1": "q"})
    plus = read_gold(write_lines(tmp_path / "p.jsonl", [{"pair-idx": 3, "query": "q", "label": "no"}]))
    assert plus.labels == {"3": 0}
    text = read_gold(write_lines(tmp_path / "t.jsonl", [{"id": "a", "label": "1"}, {"id": "b", "label": "0"}]))
    assert text.labels == {"a": 1, "b": 0}
    assert read_gold(write_lines(tmp_path / "n.jsonl", [{"label": 1}, {"label": 0}])).labels == {"1": 1, "2": 0}


def test_a_row_may_come_again_as_long_as_it_says_the_same(tmp_path: Path) -> None:
    row = {"id": "a", "label": 1, "query": "q"}
    assert read_gold(write_lines(tmp_path / "g.jsonl", [row, row])).labels == {"a": 1}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "a", "label": 1}, {"id": "a", "label": 0}], r"g.jsonl:2: the pair 'a' is that of line 1 too"),
        ([{"id": "a", "label": 1}, {"id": "a", "label": None}], r"g.jsonl:2: the pair 'a' is that of line 1 too"),
        ([{"id": "a", "label": 1}, {"id": "b"}], r"g.jsonl:2: no label"),
        ([{"id": "a", "label": 2}], r"g.jsonl:1: the label is 2; it must be 0, 1 or null"),
        ([{"id": "a", "label": "01"}], r"g.jsonl:1: the label is '01'"),
        ([{"id": "a", "label": True}], r"g.jsonl:1: the label is True"),
        ([{"id": "a", "label": 1.0}], r"g.jsonl:1: the label is 1.0"),
        ([{"id": "a", "label": [1]}], r"g.jsonl:1: the label is \[1\]"),
        ([{"id": "a", "label": 1, "votes": [0, 3]}], r"g.jsonl:1: the vote 2 is 3"),
        ([{"id": "a", "label": 1, "votes": 3}], r"g.jsonl:1: 'votes' is 3; a list"),
        ([{"id": ["a"], "label": 1}], r"g.jsonl:1: 'id' is a list"),
        ([{"id": "a", "label": None}], r"g.jsonl: holds no label of 0 or 1"),
        ([7], r"g.jsonl:1: an object expected"),
    ],
)
def test_what_is_no_gold_is_named(tmp_path: Path, rows: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_gold(write_lines(tmp_path / "g.jsonl", rows))


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_gold(tmp_path / "gone.jsonl")
    (tmp_path / "bad.jsonl").write_text('{"id": "a", "label": 1}\n{"id": \n')
    with pytest.raises(InputError, match=r"bad.jsonl:2: invalid JSON"):
        read_gold(tmp_path / "bad.jsonl")
