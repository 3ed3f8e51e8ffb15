"""One label per pair: the majority of its rounds and their agreement."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.evaluation.tally import Tally
from agent.runs.store.annotations import (
    Label,
    LabelStatus,
    PairLabel,
    combine_rounds,
    compute_vote_share,
    find_majority_round,
    measure_agreement,
)
from tests.runs.store.samples import make_annotation, make_error, make_evidence, open_folder

LABELS: st.SearchStrategy[list[Label]] = st.lists(st.sampled_from([0, 1, None]), max_size=9)


@given(LABELS.filter(lambda labels: len(labels) > 1))
def test_agreement_equals_the_share_of_equal_pairs(outcomes: list[Label]) -> None:
    counts = [outcomes.count(value) for value in (0, 1, None)]
    chances = sum(count * (count - 1) for count in counts) / (len(outcomes) * (len(outcomes) - 1))
    assert measure_agreement(outcomes) == pytest.approx(chances)
    assert measure_agreement(outcomes[:1]) is None


def combine(*rounds: LabelStatus) -> PairLabel:
    return combine_rounds("a", rounds)


def test_the_agreement_of_a_run_is_the_mean_over_pairs_and_ignores_errors() -> None:
    rounds: list[tuple[LabelStatus, ...]] = [("1", "1"), ("1", "0"), ("1", "error"), ("error", "error")]
    labels = [combine(*statuses) for statuses in rounds]
    assert [label.agreement for label in labels] == [1.0, 0.0, None, None]
    assert Tally(votes=Counter(rounds)).agreement == fmean([1.0, 0.0])
    assert [(label.label, label.errors, label.status == "undecided") for label in labels] == [
        (1, 0, False), (None, 0, True), (1, 1, False), (None, 2, False)
    ]  # fmt: skip
    assert Tally(votes=Counter([("1",)])).agreement is None


def test_an_undecided_round_votes_and_a_failed_round_does_not() -> None:
    assert combine("1", "undecided", "undecided").label is None
    assert combine("1", "undecided").label is None
    assert combine("1", "1", "undecided").label == 1
    assert combine("1", "error", "error").label == 1


@pytest.mark.parametrize(("rounds", "status", "share"), [
    (["no_intent", "no_intent", "1"], "no_intent", 2 / 3), (["no_intent", "1", "0"], "undecided", 1 / 3),
    (["no_intent", "undecided"], "undecided", 1 / 2), (["no_intent", "error", "error"], "no_intent", 1 / 3),
    (["1", "1", "error"], "1", 2 / 3), (["1", "0"], "undecided", 1 / 2), (["error"], "error", 0), (["0"], "0", 1),
])  # fmt: skip
def test_the_vote_share_counts_the_rounds_with_the_majority_status(
    rounds: list[LabelStatus], status: LabelStatus, share: float
) -> None:
    assert combine(*rounds).status == status
    assert compute_vote_share(rounds, len(rounds)) == pytest.approx(share)
    assert compute_vote_share(rounds, 4) == pytest.approx(share * len(rounds) / 4)


@pytest.mark.parametrize(("rounds", "index"), [
    (["1"], 0), (["0", "1", "1"], 1), (["error", "0"], 1), (["error", "undecided"], 1), (["error", "error"], 0),
    (["1", "0"], None), (["1", "0", "undecided"], None), (["error", "1", "0"], None), (["1", "undecided"], None),
    (["1", "undecided", "undecided"], 1), (["error", "error", "1"], 2),
])  # fmt: skip
def test_the_first_majority_round_represents_a_pair(rounds: list[LabelStatus], index: int | None) -> None:
    assert find_majority_round(rounds) == index


def read_labels(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "labels.jsonl").read_text().splitlines()]


def test_a_closed_run_has_one_label_per_pair_in_input_order(tmp_path: Path) -> None:
    with open_folder(tmp_path / "run") as folder:
        for pair_id, number, label in (("2", 0, 0), ("0", 1, 1), ("0", 0, 1), ("0", 2, 0)):
            folder.commit(make_annotation(pair_id, label=label, round=number), make_evidence(pair_id))
        folder.commit(make_error("1"), make_evidence("1"))
    assert read_labels(tmp_path / "run") == [
        {"id": "0", "label": 1, "votes": [1, 1, 0], "agreement": 1 / 3, "errors": 0, "status": "1"},
        {
            "id": "1",
            "label": None,
            "votes": [None],
            "agreement": None,
            "errors": 1,
            "status": "error",
        },
        {"id": "2", "label": 0, "votes": [0], "agreement": None, "errors": 0, "status": "0"},
    ]


def test_outdated_labels_of_a_killed_process_are_updated(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with open_folder(run) as folder:
        folder.commit(make_annotation("0", label=1), make_evidence("0"))
    line = (run / "annotations.jsonl").read_bytes()
    (run / "annotations.jsonl").write_bytes(line + line.replace(b'"id":"0"', b'"id":"1"'))
    with open_folder(run):
        pass
    assert [label["id"] for label in read_labels(run)] == ["0", "1"]
