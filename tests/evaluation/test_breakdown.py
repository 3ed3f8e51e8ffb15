"""Breakdowns put every pair with gold in its group; calibration compares confidence with being right."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from agent.evaluation.breakdown import Breakdown, BreakdownGroup, Calibration, break_down, calibrate, ece, reliability
from agent.evaluation.measures import Confusion
from agent.evaluation.statistics import BINS
from agent.evaluation.tally import Observation, Tally
from agent.types import Annotation
from tests.evaluation.runs import annotated, make_error

RUN: list[tuple[Annotation, int | None]] = [
    (annotated("screened", 1), 0),
    (annotated("passed", 1, "passed"), 1),
    (annotated("overruled", 0, "passed", stand_ins=("Db",)), 0),
    (annotated("overruled wrongly", 0, "passed"), 1),
    (annotated("failed", 0, "failed", "snippet"), 0),
    (annotated("forgiven", 1, "failed", "snippet"), 0),
    (annotated("raised", 0, "error", "snippet"), 1),
    (annotated("undecided", None, "passed"), 1),
    (annotated("nothing proved", 0, "passed", vacuous=True), 1),
    (make_error("broken"), 0),
    (annotated("without gold", 1, "passed"), None),
]


@pytest.fixture(scope="module")
def breakdown() -> Breakdown:
    tally = Tally()
    for annotation, gold in RUN:
        tally.add(Observation(annotation, gold=gold))
    return break_down(tally)


def confusions(groups: Iterable[BreakdownGroup]) -> dict[str, Confusion]:
    return {group.name: group.confusion for group in groups}


def test_pairs_are_grouped_by_what_decided_by_test_and_cause_and_by_stand_ins(breakdown: Breakdown) -> None:
    assert confusions(breakdown.decided_by) == {
        "arbitrate": Confusion(tp=1, fp=1, fn=3, tn=2, null_positive=1),
        "screen": Confusion(fp=1),
        "error: ModelError": Confusion(null_negative=1),
    }
    assert confusions(breakdown.tests) == {
        "passed": Confusion(tp=1, fn=1, tn=1, null_positive=1),
        "failed: snippet": Confusion(fp=1, tn=1),
        "error: snippet": Confusion(fn=1),
        "passed, but proves nothing": Confusion(fn=1),
        "no test": Confusion(fp=1, null_negative=1),
    }
    assert confusions(breakdown.stand_ins) == {
        "no stand-ins": Confusion(tp=1, fp=1, fn=3, tn=1, null_positive=1),
        "stand-ins": Confusion(tn=1),
        "no test": Confusion(fp=1, null_negative=1),
    }


def test_labels_that_go_against_their_test_have_their_accuracy(breakdown: Breakdown) -> None:
    assert {group.name: (group.pairs, group.accuracy) for group in breakdown.overrides} == {
        "followed": (2, 1.0),
        "passed, but 0": (2, 0.5),
        "failed, but 1": (1, 0.0),
    }


def test_every_way_but_overrides_holds_every_pair_once_the_largest_group_first(breakdown: Breakdown) -> None:
    for groups in (breakdown.decided_by, breakdown.tests, breakdown.stand_ins):
        sizes = [group.pairs for group in groups]
        assert sum(sizes) == len(RUN) - 1
        assert sizes == sorted(sizes, reverse=True)
        for group in groups:
            assert group.interval.low <= group.accuracy <= group.interval.high


def test_calibration_takes_labels_with_confidence_and_gold_alone() -> None:
    labels = {"right": 1, "wrong": 0, "undecided": None, "silent": 1, "without gold": 1}
    confidences = {"right": 0.9, "wrong": 0.6, "undecided": 0.5, "without gold": 0.1}
    gold = {"right": 1, "wrong": 1, "undecided": 1, "silent": 1}
    found = calibrate(labels, confidences, gold, {})
    assert found is not None
    assert found.labels == 2
    assert found.brier == pytest.approx((0.01 + 0.36) / 2, abs=1e-9)
    assert found.ece == pytest.approx((0.1 + 0.6) / 2, abs=1e-9)
    assert found.brier_interval is not None
    assert (found.brier_interval.low, found.brier_interval.high) == pytest.approx((0.01, 0.36), abs=1e-9)
    assert Calibration.model_validate_json(found.model_dump_json()) == found
    assert calibrate(labels, {}, gold, {}) is None


EDGES = st.sampled_from([number / 20 for number in range(21)])


@given(st.lists(st.tuples(st.floats(0, 1) | EDGES, st.booleans()), min_size=1, max_size=80))
def test_bins_and_ece_are_their_definitions(judged: list[tuple[float, bool]]) -> None:
    confidences, right = map(list, zip(*judged, strict=True))
    c, r = np.array(confidences), np.array(right, dtype=float)
    # NumPy's histogram has the same bins: half open, the last one closed
    edges = np.arange(BINS + 1) / BINS
    counts, sums, hits = (np.histogram(c, edges, weights=weights)[0] for weights in (None, c, r))
    table = reliability(confidences, right)
    assert [each.count for each in table] == counts.tolist()
    assert ece(table) == pytest.approx(np.abs(hits - sums).sum() / len(c), abs=1e-9)
    for each in table:
        assert each.confidence is None or each.low - 1e-12 <= each.confidence <= each.high + 1e-12


def test_a_bin_has_its_share_and_wilson_interval_and_its_lower_edge() -> None:
    (high,) = (each for each in reliability([0.2, 0.9, 0.9, 0.9], [False, True, True, False]) if each.count == 3)
    assert (high.confidence, high.accuracy) == (pytest.approx(0.9), pytest.approx(2 / 3))
    assert high.interval is not None
    assert (high.interval.low, high.interval.high) == pytest.approx(proportion_confint(2, 3, method="wilson"), abs=1e-9)
    table = reliability([0.0, 0.1, 0.3, 0.7, 0.71, 0.8, 0.9, 1.0], [True] * 8)
    assert [each.count for each in table] == [1, 1, 0, 1, 0, 0, 0, 2, 1, 2]
    assert ece(reliability([1.0, 0.0], [True, False])) == 0.0
