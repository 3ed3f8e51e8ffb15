"""Calibration: bins hold what belongs to them, and the scores are their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from agent.evaluation.calibration import bin_name, bin_of, brier, ece, reliability

EDGES = st.sampled_from([number / 20 for number in range(21)])
JUDGED = st.lists(st.tuples(st.floats(0, 1) | EDGES, st.booleans()), min_size=1, max_size=80)


@settings(deadline=None)
@given(JUDGED, st.integers(1, 20))
def test_brier_and_ece_are_their_definitions(judged: list[tuple[float, bool]], bins: int) -> None:
    confidences, right = map(list, zip(*judged, strict=True))
    c, r = np.array(confidences), np.array(right, dtype=float)
    assert brier(confidences, right) == pytest.approx(float(np.mean((c - r) ** 2)), abs=1e-9)
    # NumPy's histogram has the same bins: half open, the last one closed
    edges = np.arange(bins + 1) / bins
    counts, sums, hits = (np.histogram(c, edges, weights=weights)[0] for weights in (None, c, r))
    table = reliability(confidences, right, bins=bins)
    assert [each.count for each in table] == counts.tolist()
    assert ece(table) == pytest.approx(np.abs(hits - sums).sum() / len(c), abs=1e-9)


@settings(deadline=None)
@given(JUDGED)
def test_every_label_is_in_one_bin(judged: list[tuple[float, bool]]) -> None:
    confidences, right = map(list, zip(*judged, strict=True))
    table = reliability(confidences, right)
    assert sum(each.count for each in table) == len(judged)
    for each in table:
        assert each.confidence is None or each.low - 1e-12 <= each.confidence <= each.high + 1e-12


def test_a_bin_has_its_lower_edge_and_the_last_one_both() -> None:
    table = reliability([0.0, 0.1, 0.3, 0.7, 0.71, 0.8, 0.9, 1.0], [True] * 8)
    assert [each.count for each in table] == [1, 1, 0, 1, 0, 0, 0, 2, 1, 2]
    assert [table[number].name for number in (0, 8, 9)] == ["[0.0, 0.1)", "[0.8, 0.9)", "[0.9, 1.0]"]


@pytest.mark.parametrize("bins", [1, 3, 10, 20])
def test_every_edge_is_in_the_bin_that_begins_with_it(bins: int) -> None:
    for number in range(bins):
        assert bin_of(number / bins, bins) == number
    assert bin_of(1.0, bins) == bins - 1
    assert bin_name(0, bins).startswith("[0.0, ")


def test_bins_tell_share_and_wilson_interval() -> None:
    (low, high) = reliability([0.2, 0.4, 0.9, 0.9, 0.9], [False, False, True, True, False], bins=2)
    assert (low.count, low.confidence, low.accuracy) == (2, pytest.approx(0.3), 0.0)
    assert (high.count, high.confidence, high.accuracy) == (3, pytest.approx(0.9), pytest.approx(2 / 3))
    assert high.interval is not None
    assert (high.interval.low, high.interval.high) == pytest.approx(proportion_confint(2, 3, method="wilson"), abs=1e-9)


def test_perfect_confidence_has_no_error_and_without_labels_there_is_none_to_tell() -> None:
    assert brier([1.0, 0.0], [True, False]) == 0.0
    assert ece(reliability([1.0, 0.0], [True, False])) == 0.0
    assert brier([], []) is None
    assert ece(reliability([], [])) is None


def test_what_is_no_confidence_is_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        brier([1.5], [True])
    with pytest.raises(ValueError, match="1 confidences for 2 labels"):
        brier([0.5], [True, False])
    with pytest.raises(ValueError, match="at least 1 bin"):
        reliability([0.5], [True], bins=0)
