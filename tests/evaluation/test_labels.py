"""Tests for reading labels, gold labels and the labels of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.errors import InputError, RunFolderError, UsageError
from agent.evaluation.labels import Rater, compute_majority, read_gold, read_labels
from agent.evaluation.scoring import read_run
from tests.evaluation.runs import annotate, make_error, write_lines, write_run


def read_labels_by_annotator(path: Path) -> dict[str, dict[str, int | None]]:
    return {annotator.name: dict(annotator.labels) for annotator in read_labels(path)[0]}


def test_a_labels_file_is_one_annotator_named_after_the_file(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "ann.jsonl", [{"id": "a", "label": 1, "query": "q"}, {"id": "b", "label": None}])
    assert read_labels_by_annotator(path) == {"ann": {"a": 1, "b": None}}
    assert read_labels(path)[1] == {"a": "q"}


def test_every_vote_is_an_annotator(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"id": "a", "label": 1, "votes": [1, 0]}, {"id": "b", "votes": [0, None, 1]}]
    assert read_labels_by_annotator(write_lines(tmp_path / "v.jsonl", rows)) == {
        "v vote 1": {"a": 1, "b": 0},
        "v vote 2": {"a": 0, "b": None},
        "v vote 3": {"b": 1},
    }


def test_a_file_can_name_its_annotators(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "label": 1, "annotator": "eve"},
        {"id": "a", "label": 0, "annotator": "bob"},
        {"id": "a", "label": 1, "annotator": "eve"},
    ]
    assert read_labels_by_annotator(write_lines(tmp_path / "n.jsonl", rows)) == {"eve": {"a": 1}, "bob": {"a": 0}}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "a", "label": 1}, {"id": "a", "label": 0}], r":2: pair 'a': .*'f' .* on line 1$"),
        ([{"id": "a", "votes": [1]}, {"id": "b", "label": 0}], r":2: .*'votes'"),
        ([{"id": "a", "votes": [1], "annotator": "eve"}], r":1: .*'votes'.*'annotator'"),
        ([{"id": "a", "label": 1, "annotator": 3}], r":1: 'annotator'"),
        ([{"id": "a"}], r":1: .*'label'"),
        ([], r"f\.jsonl: "),
    ],
)
def test_invalid_label_files_are_rejected(tmp_path: Path, rows: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_labels(write_lines(tmp_path / "f.jsonl", rows))


def test_the_majority_covers_the_pairs_of_all_annotators() -> None:
    combined = compute_majority([Rater("x", {"a": 1, "b": 0}), Rater("y", {"a": 0, "c": 1}), Rater("z", {"d": None})])
    assert combined.labels == {"a": None, "b": 0, "c": 1, "d": None}


def test_read_run_returns_labels_queries_and_counts(tmp_path: Path) -> None:
    decided = annotate("a1", 1, "failed", "snippet", stand_ins=("Db",))
    run = read_run(write_run(tmp_path / "r", [decided, annotate("b1", None), make_error("b2")]))
    assert run.annotator == Rater("r", {"a1": 1, "b1": None, "b2": None}, "run")
    assert run.queries == {"a1": "a", "b1": "b", "b2": "b"}
    assert (run.tally.outcomes, run.tally.with_stand_ins) == ({"failed": {"1": 1}}, 1)
    assert run.tally.errors == {"ModelError": 1}


def test_read_run_returns_the_majority_or_a_single_round(tmp_path: Path) -> None:
    rounds = [
        annotate("a", 0, "failed", round=0),
        annotate("a", 1, "passed", round=1),
        annotate("a", 1, "passed", round=2),
        annotate("b", 0, round=0),
        annotate("b", 1, round=1),
        make_error("c"),
        annotate("c", 1, "passed", round=1),
    ]
    path = write_run(tmp_path / "r", rounds)
    run = read_run(path)
    assert run.annotator.labels == {"a": 1, "b": None, "c": 1}
    assert [dict(rater.labels) for rater in run.rounds] == [
        {"a": 0, "b": 0, "c": None},
        {"a": 1, "b": 1, "c": 1},
        {"a": 1},
    ]
    assert run.tally.outcomes == {"passed": {"1": 2}}
    assert run.tally.deciders == {"arbitrate": {"1": 2}}
    assert not run.tally.errors
    assert read_run(path, 0).annotator.labels == {"a": 0, "b": 0, "c": None}
    assert read_run(path, 0).tally.errors == {"ModelError": 1}
    with pytest.raises(UsageError, match=r"round 3 .*0, 1, 2"):
        read_run(path, 3)


def test_folders_without_annotations_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"manifest\.json"):
        read_run(tmp_path)
    with pytest.raises(UsageError, match="empty"):
        read_run(write_run(tmp_path / "empty", []))


def test_read_gold_returns_labels_queries_and_the_number_of_null_labels(tmp_path: Path) -> None:
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


def test_gold_labels_of_known_datasets_are_read_unchanged(tmp_path: Path) -> None:
    cosqa = read_gold(write_lines(tmp_path / "c.jsonl", [{"idx": "cosqa-dev-1", "doc": "q", "code": "x", "label": 1}]))
    assert (cosqa.labels, cosqa.queries) == ({"cosqa-dev-1": 1}, {"cosqa-dev-1": "q"})
    plus = read_gold(write_lines(tmp_path / "p.jsonl", [{"pair-idx": 3, "query": "q", "label": "no"}]))
    assert plus.labels == {"3": 0}
    assert read_gold(write_lines(tmp_path / "n.jsonl", [{"label": 1}, {"label": 0}])).labels == {"1": 1, "2": 0}


def test_identical_rows_are_accepted(tmp_path: Path) -> None:
    row = {"id": "a", "label": 1, "query": "q"}
    assert read_gold(write_lines(tmp_path / "g.jsonl", [row, row])).labels == {"a": 1}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "a", "label": 1}, {"id": "a", "label": 0}], r"g.jsonl:2: pair 'a' .*line 1$"),
        ([{"id": "a", "label": 1}, {"id": "b"}], r"g.jsonl:2: .*'label'"),
        ([{"id": "a", "label": 1, "votes": [0, 3]}], r"g.jsonl:1: 'votes.1' is 3;"),
        ([{"id": "a", "label": 1, "votes": 3}], r"g.jsonl:1: 'votes' is 3;"),
        ([{"id": ["a"], "label": 1}], r"g.jsonl:1: 'id' is a list"),
        ([{"id": "a", "label": None}], r"g.jsonl: "),
        ([7], r"g.jsonl:1: "),
    ],
)
def test_invalid_gold_files_are_rejected(tmp_path: Path, rows: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_gold(write_lines(tmp_path / "g.jsonl", rows))
