"""Tests for breakdowns by group and for calibration."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from agent.evaluation.breakdown import (
    Breakdown,
    BreakdownGroup,
    Calibration,
    break_down,
    calibrate,
    expected_calibration_error,
    find_mistake,
    reliability_table,
)
from agent.evaluation.measures import Confusion
from agent.evaluation.statistics import BINS
from agent.evaluation.tally import Observation, Tally
from agent.types import Annotation, Pair
from tests.evaluation.runs import annotate, make_error

RUN: list[tuple[Annotation, int | None]] = [
    (annotate("screened", 1, screen_verdict="match"), 0),
    (annotate("passed", 1, "passed"), 1),
    (annotate("overruled", 0, "passed", stand_ins=("Db",)), 0),
    (annotate("overruled wrongly", 0, "passed"), 1),
    (annotate("failed", 0, "failed", "snippet"), 0),
    (annotate("forgiven", 1, "failed", "snippet"), 0),
    (annotate("raised", 0, "error", "snippet"), 1),
    (annotate("undecided", None, "passed"), 1),
    (annotate("nothing proved", 0, "passed", vacuous=True), 1),
    (make_error("broken"), 0),
    (annotate("without gold", 1, "passed"), None),
]


@pytest.fixture(scope="module")
def breakdown() -> Breakdown:
    tally = Tally()
    for annotation, gold in RUN:
        tally.add(Observation(annotation, gold=gold))
    return break_down(tally)


def map_confusions(groups: Iterable[BreakdownGroup]) -> dict[str, Confusion]:
    return {group.name: group.confusion for group in groups}


def test_pairs_are_grouped_by_deciding_step_test_and_stand_ins(breakdown: Breakdown) -> None:
    assert map_confusions(breakdown.decided_by) == {
        "arbitrate": Confusion(tp=1, fp=1, fn=3, tn=2, null_positive=1),
        "screen": Confusion(fp=1),
        "error: ModelError": Confusion(null_negative=1),
    }
    assert map_confusions(breakdown.evidence) == {
        "arbitrate: passed": Confusion(tp=1, fn=1, tn=1, null_positive=1),
        "arbitrate: failed: snippet": Confusion(fp=1, tn=1),
        "arbitrate: error: snippet": Confusion(fn=1),
        "arbitrate: passed, but proves nothing": Confusion(fn=1),
        "screen: match": Confusion(fp=1),
        "error: ModelError": Confusion(null_negative=1),
    }
    assert map_confusions(breakdown.tests) == {
        "passed": Confusion(tp=1, fn=1, tn=1, null_positive=1),
        "failed: snippet": Confusion(fp=1, tn=1),
        "error: snippet": Confusion(fn=1),
        "passed, but proves nothing": Confusion(fn=1),
        "no test": Confusion(fp=1, null_negative=1),
    }
    assert map_confusions(breakdown.stand_ins) == {
        "no stand-ins": Confusion(tp=1, fp=1, fn=3, tn=1, null_positive=1),
        "stand-ins": Confusion(tn=1),
        "no test": Confusion(fp=1, null_negative=1),
    }


def test_overrides_compare_labels_with_their_tests(breakdown: Breakdown) -> None:
    assert {group.name: (group.pairs, group.accuracy) for group in breakdown.overrides} == {
        "followed": (2, 1.0),
        "passed, but 0": (2, 0.5),
        "failed, but 1": (1, 0.0),
    }


def test_mistakes_are_the_false_and_missed_matches() -> None:
    pairs = {annotation.id: Pair(id=annotation.id, query="q", code="c") for annotation, _ in RUN}
    mistakes = [find_mistake(pairs[annotation.id], Observation(annotation, gold=gold)) for annotation, gold in RUN]
    assert [(row.id, row.gold, row.label, row.decided_by, row.test) for row in mistakes if row] == [
        ("screened", 0, 1, "screen", "no test"),
        ("overruled wrongly", 1, 0, "arbitrate", "passed"),
        ("forgiven", 0, 1, "arbitrate", "failed: snippet"),
        ("raised", 1, 0, "arbitrate", "error: snippet"),
        ("undecided", 1, None, "arbitrate", "passed"),
        ("nothing proved", 1, 0, "arbitrate", "passed, but proves nothing"),
    ]


def test_groupings_except_overrides_contain_every_pair_largest_group_first(breakdown: Breakdown) -> None:
    for groups in (breakdown.decided_by, breakdown.evidence, breakdown.tests, breakdown.stand_ins):
        sizes = [group.pairs for group in groups]
        assert sum(sizes) == len(RUN) - 1
        assert sizes == sorted(sizes, reverse=True)
        for group in groups:
            assert group.interval.low <= group.accuracy <= group.interval.high


def test_calibration_uses_labels_with_confidence_and_gold_label() -> None:
    labels = {"right": 1, "wrong": 0, "undecided": None, "silent": 1, "without gold": 1}
    confidences = {"right": 0.9, "wrong": 0.6, "undecided": 0.5, "without gold": 0.1}
    gold = {"right": 1, "wrong": 1, "undecided": 1, "silent": 1}
    calibration = calibrate(labels, confidences, gold, {})
    assert calibration is not None
    assert calibration.labels == 2
    assert calibration.brier == pytest.approx((0.01 + 0.36) / 2, abs=1e-9)
    assert calibration.ece == pytest.approx((0.1 + 0.6) / 2, abs=1e-9)
    assert calibration.brier_interval is not None
    assert (calibration.brier_interval.low, calibration.brier_interval.high) == pytest.approx((0.01, 0.36), abs=1e-9)
    assert Calibration.model_validate_json(calibration.model_dump_json()) == calibration
    assert calibrate(labels, {}, gold, {}) is None


EDGES = st.sampled_from([number / 20 for number in range(21)])


@given(st.lists(st.tuples(st.floats(0, 1) | EDGES, st.booleans()), min_size=1, max_size=80))
def test_bins_and_calibration_error_match_numpy(labels: list[tuple[float, bool]]) -> None:
    confidences, correct = map(list, zip(*labels, strict=True))
    c, r = np.array(confidences), np.array(correct, dtype=float)
    # NumPy's histogram uses the same bins: half-open, except that the last one is closed
    edges = np.arange(BINS + 1) / BINS
    counts, sums, hits = (np.histogram(c, edges, weights=weights)[0] for weights in (None, c, r))
    table = reliability_table(confidences, correct)
    assert [row.count for row in table] == counts.tolist()
    assert expected_calibration_error(table) == pytest.approx(np.abs(hits - sums).sum() / len(c), abs=1e-9)
    for row in table:
        assert row.confidence is None or row.low - 1e-12 <= row.confidence <= row.high + 1e-12


def test_bins_have_wilson_intervals_and_include_their_lower_edge() -> None:
    (high,) = (row for row in reliability_table([0.2, 0.9, 0.9, 0.9], [False, True, True, False]) if row.count == 3)
    assert (high.confidence, high.accuracy) == (pytest.approx(0.9), pytest.approx(2 / 3))
    assert high.interval is not None
    assert (high.interval.low, high.interval.high) == pytest.approx(proportion_confint(2, 3, method="wilson"), abs=1e-9)
    table = reliability_table([0.0, 0.1, 0.3, 0.7, 0.71, 0.8, 0.9, 1.0], [True] * 8)
    assert [row.count for row in table] == [1, 1, 0, 1, 0, 0, 0, 2, 1, 2]
    assert expected_calibration_error(reliability_table([1.0, 0.0], [True, False])) == 0.0
