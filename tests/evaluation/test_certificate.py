"""Tests for certificates and calibration against enumeration, SciPy, MAPIE and simulated reviews."""

from __future__ import annotations

import random
from itertools import combinations
from math import comb
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from agent.evaluation.certificate import (
    Bound,
    Outcome,
    ReviewedStrata,
    bound_anytime,
    bound_exactly,
    calibrate,
    certify,
    combine_reviews,
    compute_capital,
    count_needed_reviews,
    find_first_prefix,
)
from agent.evaluation.statistics import bound_errors, compute_p_value
from agent.runs.store.strata import Stratum
from tests.benchmarks.guarantees import SHAPES, check, simulate

HUGE = 10**7


def make_reviews(*strata: tuple[int, int, int], label: Literal[0, 1] = 1) -> ReviewedStrata:
    """Return strata with the given size, reviewed pairs and wrong pairs, in random order and with the same label."""
    outcomes = [
        Outcome(number, label, index < wrong)
        for number, (_, reviewed, wrong) in enumerate(strata)
        for index in range(reviewed)
    ]
    random.Random(1).shuffle(outcomes)
    sizes = tuple((0, size) if label else (size, 0) for size, _, _ in strata)
    return ReviewedStrata(sizes, tuple(outcomes))


@given(
    st.integers(1, 25).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size))),
    st.integers(0, 25),
    st.sampled_from([0.01, 0.05, 0.3]),
)
def test_exact_bounds_match_enumeration(counts: tuple[int, int], wrong: int, alpha: float) -> None:
    size, reviewed = counts
    wrong = min(wrong, reviewed)

    def p_value(errors: int) -> float:
        ways = sum(comb(errors, x) * comb(size - errors, reviewed - x) for x in range(wrong + 1))
        return ways / comb(size, reviewed)

    possible = range(wrong, size - reviewed + wrong + 1)
    assert bound_errors(size, reviewed, wrong, alpha) == max(k for k in possible if p_value(k) >= alpha)
    assert [compute_p_value(size, reviewed, wrong, k) for k in possible] == pytest.approx(
        [p_value(k) for k in possible]
    )


@pytest.mark.parametrize(("wrong", "share"), [(0, 0.0149), (1, 0.0235), (2, 0.0311)])
def test_exact_bounds_of_large_runs_are_those_of_clopper_and_pearson(wrong: int, share: float) -> None:
    expected = binomtest(wrong, 200, alternative="less").proportion_ci(0.95, method="exact").high
    assert (
        bound_errors(HUGE, 200, wrong, 0.05) / HUGE
        == pytest.approx(expected, abs=1e-5)
        == pytest.approx(share, abs=5e-5)
    )


def test_p_values_match_mapie() -> None:
    methods = pytest.importorskip("mapie.risk_control.methods")
    counts = [(93, 1), (200, 4), (200, 0), (600, 18)]
    for reviewed, wrong in counts:
        [expected] = methods.compute_hoeffding_bentkus_p_value(
            methods.np.array([wrong / reviewed]), reviewed, methods.np.array([0.05]), binary=True
        )[0]
        assert compute_p_value(HUGE, reviewed, wrong, HUGE // 20) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("counts", [(10, 11, 0), (10, 5, 6), (10, 5, -1)])
def test_contradictory_counts_are_rejected(counts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="counts"):
        bound_errors(*counts, 0.05)


@pytest.mark.parametrize("errors", range(10))
def test_the_anytime_bound_is_rarely_ever_below_the_truth(errors: int) -> None:
    orders = [[index in chosen for index in range(9)] for chosen in combinations(range(9), errors)]
    below = sum(min(bound_anytime(9, order[:n], 0.2) for n in range(10)) < errors for order in orders)
    assert below <= 0.2 * len(orders)


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 60))
@settings(deadline=None)
def test_the_anytime_bound_is_the_largest_number_of_errors_that_no_capital_rejects(
    wrong: list[bool], unseen: int
) -> None:
    size = len(wrong) + unseen
    possible = range(sum(wrong), sum(wrong) + unseen + 1)
    accepted = [k for k in possible if compute_capital(size, wrong, k).max(initial=1) < 20.000001]
    assert bound_anytime(size, wrong, 0.05) == max(accepted, default=sum(wrong))
    assert bound_anytime(size, wrong, 0.05) >= bound_anytime(size, [*wrong, False][:size], 0.05)


@pytest.mark.parametrize("bound", [bound_exactly, bound_anytime])
def test_bounds_of_complete_reviews_are_exact(bound: Bound) -> None:
    assert bound(300, [True] * 7 + [False] * 293, 0.05) == 7
    assert bound(0, [], 0.05) == 0
    assert bound(50, [], 0.05) == 50


def test_the_first_prefix_depends_on_sizes_and_tolerates_an_error() -> None:
    needed = [count_needed_reviews(level) for level in (0.05, 0.03, 0.01)]
    assert needed == [93, 157, 473]
    assert [bound_errors(HUGE, n, 1, 0.05) / HUGE <= 0.05 for n in (92, 93)] == [False, True]
    assert [find_first_prefix([1000, 4000, 5000], n, 0.05) for n in (92, 93, 185, 186, 1000)] == [None, 3, 3, 2, 2]


def test_certification_stops_at_the_first_failure() -> None:
    reviewed = make_reviews((5000, 100, 0), (1000, 20, 9), (4000, 200, 0), (1000, 30, 0))
    certificate = certify(reviewed, 350, 0.05)
    # the whole set would pass
    assert bound_errors(11_000, 350, 9, 0.05) < 550
    assert (certificate.strata, len(certificate.prefixes), certificate.total.size) == (0, 1, 0)


@pytest.mark.parametrize("bound", [bound_exactly, bound_anytime])
def test_the_certified_set_is_the_last_prefix_that_passes(bound: Bound) -> None:
    certificate = certify(make_reviews((6000, 240, 1), (3000, 120, 2), (1000, 40, 30)), 400, 0.05, bound=bound)
    assert (certificate.strata, [prefix.wrong for prefix in certificate.prefixes]) == (2, [1, 3, 33])
    assert certificate.sizes == (0, 10_000)
    assert (certificate.total.size, certificate.ones.size, certificate.zeros.size) == (9000, 9000, 0)
    # a simultaneous bound is wider
    assert certificate.prefixes[1].share < certificate.total.share == certificate.ones.share
    assert certificate.zeros.bound == 0
    assert (certificate.recall, certificate.certified_recall) == (1, 357 / 367)


def test_a_pair_without_a_verdict_counts_as_wrong() -> None:
    stratum = Stratum((), {str(number): 1 if number < 300 else 0 for number in range(1000)})
    right = {pair: label for pair, label in stratum.labels.items() if int(pair) % 5 == 0}
    certificates = [
        certify(combine_reviews([stratum], verdicts), 200, 0.05)
        for verdicts in (right, {**right, "0": 0}, {**right, "0": None}, {**right, "995": 1})
    ]
    assert [certificate.total.wrong for certificate in certificates] == [0, 1, 1, 1]
    assert [certificate.ones.wrong for certificate in certificates] == [0, 1, 1, 0]
    assert [certificate.recall for certificate in certificates] == [1, 1, 1, 60 / 61]
    assert certificates[0].total.bound < certificates[1].total.bound == certificates[2].total.bound
    with pytest.raises(KeyError):
        combine_reviews([stratum], {"unknown": 1})


def test_calibration_shrinks_rates_and_scores_each_review_without_itself() -> None:
    counts = ((5000, 100, 1), (3000, 60, 2), (2000, 10, 5), (100, 0, 0))
    calibration = calibrate(make_reviews(*counts))
    for rate, (size, reviewed, wrong) in zip(calibration.strata, counts, strict=True):
        share = (reviewed - wrong) / reviewed if reviewed else calibration.pooled
        low, high = sorted((share, calibration.pooled))
        assert low <= rate.p_correct <= high
        assert 1 - rate.p_low == pytest.approx(bound_errors(size, reviewed, wrong, 0.05 / 4) / size)
    assert calibration.by_stratum is not None
    assert calibration.by_pooled_rate is not None
    assert calibration.by_stratum.brier < calibration.by_pooled_rate.brier
    assert calibration.by_stratum.log_loss < calibration.by_pooled_rate.log_loss
    assert calibration.by_stratum.reliability < calibration.by_pooled_rate.reliability
    # the 162 right and 8 wrong reviews are predicted from the other 169, with half a pair of each kind added
    right, wrong = 161.5 / 170, 162.5 / 170
    assert calibration.by_pooled_rate.brier == pytest.approx((162 * (1 - right) ** 2 + 8 * wrong**2) / 170)


def test_calibration_without_reviews_or_pairs_has_no_scores() -> None:
    empty = calibrate(make_reviews((10, 0, 0)))
    assert (empty.pooled, empty.strata[0].p_correct, empty.strata[0].p_low, empty.by_stratum) == (0.5, 0.5, 0, None)
    assert calibrate(make_reviews()).strata == ()


@pytest.mark.parametrize("shape", SHAPES)
def test_simulated_reviews_keep_the_guarantees(shape: str) -> None:
    assert check(shape, simulate(shape, 200, 200), slack=0.05) == []
