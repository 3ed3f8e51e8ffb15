"""Breakdowns put every pair with gold in its group, and tell labels that go against their test."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.evaluation.calibration import Calibration, calibrate
from agent.evaluation.measures import Breakdown, Confusion, Group, break_down
from agent.evaluation.sources import Decision, read_run_labels
from tests.evaluation.runs import annotated, make_error, write_run

RUN = [
    annotated("screened", 1),
    annotated("passed", 1, "passed"),
    annotated("overruled", 0, "passed", stand_ins=("Db",)),
    annotated("overruled wrongly", 0, "passed"),
    annotated("failed", 0, "failed", "snippet"),
    annotated("forgiven", 1, "failed", "snippet"),
    annotated("raised", 0, "error", "snippet"),
    annotated("undecided", None, "passed"),
    annotated("nothing proved", 0, "passed", vacuous=True),
    make_error("broken"),
    annotated("without gold", 1, "passed"),
]
GOLD = {
    "screened": 0,
    "passed": 1,
    "overruled": 0,
    "overruled wrongly": 1,
    "failed": 0,
    "forgiven": 0,
    "raised": 1,
    "undecided": 1,
    "nothing proved": 1,
    "broken": 0,
}


@pytest.fixture(scope="module")
def breakdown(tmp_path_factory: pytest.TempPathFactory) -> Breakdown:
    path = write_run(tmp_path_factory.mktemp("runs") / "r", RUN)
    return break_down(read_run_labels(path).decisions, GOLD)


def confusions(groups: tuple[Group, ...]) -> dict[str, Confusion]:
    return {group.name: group.confusion for group in groups}


def test_pairs_are_grouped_by_what_decided_errors_apart(breakdown: Breakdown) -> None:
    assert confusions(breakdown.decided_by) == {
        "arbitrate": Confusion(tp=1, fp=1, fn=3, tn=2, null_positive=1),
        "screen": Confusion(fp=1),
        "error: ModelError": Confusion(null_negative=1),
    }


def test_pairs_are_grouped_by_test_and_cause(breakdown: Breakdown) -> None:
    assert confusions(breakdown.tests) == {
        "passed": Confusion(tp=1, fn=1, tn=1, null_positive=1),
        "failed: snippet": Confusion(fp=1, tn=1),
        "error: snippet": Confusion(fn=1),
        "passed, but proves nothing": Confusion(fn=1),
        "no test": Confusion(fp=1, null_negative=1),
    }


def test_pairs_are_grouped_by_stand_ins(breakdown: Breakdown) -> None:
    assert confusions(breakdown.stand_ins) == {
        "no stand-ins": Confusion(tp=1, fp=1, fn=3, tn=1, null_positive=1),
        "stand-ins": Confusion(tn=1),
        "no test": Confusion(fp=1, null_negative=1),
    }


def test_labels_that_go_against_their_test_are_told_with_their_accuracy(breakdown: Breakdown) -> None:
    assert {group.name: (group.pairs, group.accuracy) for group in breakdown.overrides} == {
        "followed": (2, 1.0),
        "passed, but 0": (2, 0.5),
        "failed, but 1": (1, 0.0),
    }


def test_every_way_but_overrides_holds_every_pair_once_the_largest_group_first(breakdown: Breakdown) -> None:
    for groups in (breakdown.decided_by, breakdown.tests, breakdown.stand_ins):
        sizes = [group.pairs for group in groups]
        assert sum(sizes) == len(GOLD)
        assert sizes == sorted(sizes, reverse=True)
        for group in groups:
            assert group.interval.low <= group.accuracy <= group.interval.high


def decision(label: int | None, confidence: float | None) -> Decision:
    return Decision(label, "arbitrate", None, None, None, stand_ins=False, confidence=confidence, error=None)


def test_calibration_takes_labels_with_confidence_and_gold_alone() -> None:
    decisions = {
        "right": decision(1, 0.9),
        "wrong": decision(0, 0.6),
        "undecided": decision(None, 0.5),
        "silent": decision(1, None),
        "without gold": decision(1, 0.1),
    }
    found = calibrate(decisions, {"right": 1, "wrong": 1, "undecided": 1, "silent": 1}, {})
    assert found is not None
    assert found.labels == 2
    assert found.brier == pytest.approx((0.01 + 0.36) / 2, abs=1e-9)
    assert found.ece == pytest.approx((0.1 + 0.6) / 2, abs=1e-9)
    assert found.brier_interval is not None
    assert (found.brier_interval.low, found.brier_interval.high) == pytest.approx((0.01, 0.36), abs=1e-9)
    assert Calibration.model_validate_json(found.model_dump_json()) == found


def test_without_confidence_there_is_no_calibration(tmp_path: Path) -> None:
    path = write_run(tmp_path / "r", RUN)
    assert calibrate(read_run_labels(path).decisions, GOLD, {}) is None
