"""Estimates from a stratified sample are unbiased sums, and their intervals cover what they say they cover."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.evaluation.estimates import Estimate, Stratum, estimate
from agent.evaluation.statistics import Interval

# (label by the run, pairs, share whose right label is 1, reviews)
Design = list[tuple[int | None, int, float, int]]
FEW_MISSED: Design = [(1, 3000, 0.95, 50), (0, 6000, 0.01, 50), (1, 500, 0.8, 50), (0, 500, 0.3, 50)]
MANY_SMALL: Design = [
    (1, 500, 0.95, 12),
    (0, 900, 0.02, 12),
    (1, 300, 0.9, 12),
    (0, 300, 0.1, 12),
    (1, 200, 0.8, 12),
    (0, 100, 0.3, 12),
    (None, 50, 0.5, 12),
    (0, 700, 0.0, 13),
]
NEARLY_ALL_REVIEWED: Design = [(1, 100, 0.92, 60), (0, 100, 0.1, 60)]


def whole(design: Design) -> list[Stratum]:
    return [Stratum(label, size, size, round(size * share)) for label, size, share, _ in design]


def sampled(design: Design, random: np.random.Generator) -> list[Stratum]:
    return [
        Stratum(label, each.size, n, int(random.hypergeometric(each.positives, each.size - each.positives, n)))
        for each, (label, _, _, n) in zip(whole(design), design, strict=True)
    ]


@pytest.mark.parametrize("design", [FEW_MISSED, MANY_SMALL, NEARLY_ALL_REVIEWED], ids=["few", "many", "nearly all"])
def test_intervals_cover_the_truth_about_as_often_as_they_say(design: Design) -> None:
    truth = {name: each.value for name, each in estimate(whole(design)).items()}
    random = np.random.default_rng(11)
    covered = dict.fromkeys(truth, 0)
    for _ in range(400):
        for name, each in estimate(sampled(design, random), draws=500).items():
            value = truth[name]
            assert each.interval is not None
            assert value is not None
            covered[name] += each.interval.low <= value <= each.interval.high
    assert all(0.88 <= count / 400 <= 0.99 for count in covered.values()), covered


def test_estimates_are_unbiased_where_they_are_sums() -> None:
    random = np.random.default_rng(5)
    truth = {name: each.value for name, each in estimate(whole(FEW_MISSED)).items()}
    found = [estimate(sampled(FEW_MISSED, random), draws=1) for _ in range(1000)]
    for name in ("accuracy", "precision"):
        values = [each[name].value or 0.0 for each in found]
        assert abs(np.mean(values) - truth[name]) < 4 * np.std(values) / 1000**0.5


def test_each_reviewed_pair_stands_for_those_of_its_stratum() -> None:
    found = estimate([Stratum(1, 100, 10, 9), Stratum(0, 300, 10, 1), Stratum(None, 20, 10, 5)])
    assert found["precision"].value == pytest.approx(90 / 100)
    assert found["recall"].value == pytest.approx(90 / (90 + 30 + 10))
    assert found["accuracy"].value == pytest.approx((90 + 270) / 420)


def test_a_run_that_was_reviewed_whole_is_known_exactly() -> None:
    found = estimate([Stratum(1, 10, 10, 9), Stratum(0, 30, 30, 3)])
    assert found["accuracy"] == Estimate(36 / 40, Interval(36 / 40, 36 / 40))
    assert found["recall"].value == 9 / 12


def test_reviews_that_were_all_right_leave_doubt() -> None:
    found = estimate([Stratum(1, 1000, 10, 10), Stratum(0, 5000, 10, 0)])
    recall, precision = found["recall"], found["precision"]
    assert (recall.value, precision.value) == (1.0, 1.0)
    assert recall.interval is not None
    assert precision.interval is not None
    assert (recall.interval.high, precision.interval.high) == (1.0, 1.0)
    assert recall.interval.low < 0.7
    assert precision.interval.low < 0.9


def test_a_stratum_without_a_review_leaves_undefined_what_needs_it() -> None:
    found = estimate([Stratum(1, 100, 10, 9), Stratum(0, 300, 0, 0)])
    assert found["precision"].value == pytest.approx(0.9)
    assert found["recall"] == found["accuracy"] == Estimate(None, None)
    assert estimate([Stratum(1, 100, 10, 9), Stratum(0, 0, 0, 0)])["recall"].value == 1.0


def test_without_positives_there_is_nothing_to_recall() -> None:
    found = estimate([Stratum(0, 10, 5, 0)])
    assert found["recall"] == found["precision"] == Estimate(None, None)
    assert found["accuracy"].value == 1.0
    assert set(estimate([]).values()) == {Estimate(None, None)}


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, None]), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30)), max_size=6
    ),
    st.integers(0, 5),
)
def test_an_interval_holds_its_value_and_stays_within_0_and_1(
    numbers: list[tuple[int | None, int, int, int]], seed: int
) -> None:
    strata = [Stratum(label, a + b + c, a + b, a) for label, a, b, c in numbers]
    found = estimate(strata, seed=seed, draws=200)
    assert found == estimate(strata, seed=seed, draws=200)
    for each in found.values():
        if each.value is None:
            assert each.interval is None
        else:
            assert each.interval is not None
            assert 0 <= each.interval.low <= each.value <= each.interval.high <= 1


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="2 positives of 1 reviewed of 5 pairs"):
        Stratum(1, 5, 1, 2)
    with pytest.raises(ValueError, match="at least 1 draw"):
        estimate([], draws=0)
