"""Labels of anybody: one annotator or several to a file, a run's rounds and their majority."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import InputError, RunFolderError, UsageError
from agent.evaluation.labels import Annotator, majority_of, read_labels
from agent.evaluation.sources import read_run_labels
from agent.store.majority import majority
from tests.evaluation.runs import annotated, make_error, write_lines, write_run


def labels_of(path: Path) -> dict[str, dict[str, int | None]]:
    return {annotator.name: dict(annotator.labels) for annotator in read_labels(path).annotators}


def test_a_file_of_labels_is_one_annotator_named_after_it(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "ann.jsonl", [{"id": "a", "label": 1, "query": "q"}, {"id": "b", "label": None}])
    assert labels_of(path) == {"ann": {"a": 1, "b": None}}
    assert read_labels(path).queries == {"a": "q"}


def test_a_file_of_votes_has_as_many_annotators_as_votes(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"id": "a", "label": 1, "votes": [1, 0]}, {"id": "b", "votes": [0, None, 1]}]
    assert labels_of(write_lines(tmp_path / "v.jsonl", rows)) == {
        "v vote 1": {"a": 1, "b": 0},
        "v vote 2": {"a": 0, "b": None},
        "v vote 3": {"b": 1},
    }


def test_a_file_may_name_its_annotators(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "label": 1, "annotator": "eve"},
        {"id": "a", "label": 0, "annotator": "bob"},
        {"id": "a", "label": 1, "annotator": "eve"},
    ]
    assert labels_of(write_lines(tmp_path / "n.jsonl", rows)) == {"eve": {"a": 1}, "bob": {"a": 0}}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "a", "label": 1}, {"id": "a", "label": 0}], r":2: the pair 'a' has another label of 'f' on line 1"),
        ([{"id": "a", "votes": [1]}, {"id": "b", "label": 0}], r":2: some lines have votes"),
        ([{"id": "a", "votes": [1], "annotator": "eve"}], r":1: 'votes' are several"),
        ([{"id": "a", "label": 1, "annotator": 3}], r":1: 'annotator' is 3; a name expected"),
        ([{"id": "a"}], r":1: no label"),
        ([], "holds no labels"),
    ],
)
def test_what_is_unclear_is_named(tmp_path: Path, rows: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_labels(write_lines(tmp_path / "f.jsonl", rows))


@settings(deadline=None)
@given(st.lists(st.sampled_from([0, 1, None]), max_size=9))
def test_the_majority_is_what_more_than_half_of_those_who_decided_say(votes: list[int | None]) -> None:
    ones, zeros = votes.count(1), votes.count(0)
    assert majority(votes) == (None if ones == zeros else int(ones > zeros))


def test_the_majority_covers_every_pair_that_anybody_was_asked() -> None:
    found = majority_of(
        [Annotator("x", {"a": 1, "b": 0}), Annotator("y", {"a": 0, "c": 1}), Annotator("z", {"d": None})]
    )
    assert found.labels == {"a": None, "b": 0, "c": 1, "d": None}


def test_a_run_has_its_labels_and_what_decided_them(tmp_path: Path) -> None:
    decided = annotated("a1", 1, "failed", "snippet", stand_ins=("Db",), confidence=0.75)
    run = read_run_labels(write_run(tmp_path / "r", [decided, annotated("b1", None), make_error("b2")]))
    assert run.annotator == Annotator("r", {"a1": 1, "b1": None, "b2": None})
    assert run.queries == {"a1": "a", "b1": "b", "b2": "b"}
    found = run.decisions["a1"]
    assert (found.outcome, found.says, found.cause) == ("failed", 0, "snippet")
    assert (found.stand_ins, found.confidence) == (True, 0.75)
    assert run.errors == {"ModelError": 1}


def test_a_run_of_rounds_gives_their_majority_or_the_round_asked_for(tmp_path: Path) -> None:
    rounds = [
        annotated("a", 0, "failed", round=0),
        annotated("a", 1, "passed", round=1),
        annotated("a", 1, "passed", round=2, confidence=0.9),
        annotated("b", 0, round=0),
        annotated("b", 1, round=1),
        make_error("c"),
        annotated("c", 1, "passed", round=1),
    ]
    path = write_run(tmp_path / "r", rounds)
    run = read_run_labels(path)
    assert run.annotator.labels == {"a": 1, "b": None, "c": 1}
    assert [dict(each.labels) for each in run.rounds] == [
        {"a": 0, "b": 0, "c": None},
        {"a": 1, "b": 1, "c": 1},
        {"a": 1},
    ]
    assert (run.decisions["a"].outcome, run.decisions["a"].confidence) == ("passed", 0.9)
    assert run.decisions["b"].decided_by is None
    assert not run.errors
    assert read_run_labels(path, 0).annotator.labels == {"a": 0, "b": 0, "c": None}
    assert read_run_labels(path, 0).errors == {"ModelError": 1}
    with pytest.raises(UsageError, match="has no round 3; there is 0, 1, 2"):
        read_run_labels(path, 3)


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="not the folder of a run"):
        read_run_labels(tmp_path)
    with pytest.raises(UsageError, match="no annotations yet"):
        read_run_labels(write_run(tmp_path / "empty", []))
