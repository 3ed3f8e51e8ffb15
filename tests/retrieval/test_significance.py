from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from agent.evaluation.statistics import BootstrapSettings
from agent.retrieval.significance import bootstrap_intervals, run_paired_tests

MANY = BootstrapSettings(seed=3, resamples=20_000)


def ids(count: int) -> list[str]:
    return [f"q{number}" for number in range(count)]


def column(values: list[float]) -> np.ndarray:
    return np.array([values], dtype=float).T


@pytest.mark.slow
@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.125, 0.25, 0.375, 1.0]), min_size=2, max_size=9))
@settings(max_examples=15)
def test_randomisation_approximates_scipys_exact_permutation_test(values: list[float]) -> None:
    [result] = run_paired_tests(ids(len(values)), column(values), MANY)
    oracle = stats.permutation_test(
        (np.array(values),), np.sum, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    # sums of these values are exact, so both count the same ties. SciPy doubles the smaller tail, which can exceed 1
    assert result.randomisation_p == pytest.approx(min(oracle.pvalue, 1), abs=0.02)


def test_with_many_queries_both_tests_approximate_the_t_test() -> None:
    random = np.random.default_rng(0)
    for mean in (0.0, 0.05, 0.12, 0.2):
        values = random.normal(mean, 1, 300)
        [result] = run_paired_tests(ids(300), column(list(values)), MANY)
        p = stats.ttest_1samp(values, 0).pvalue
        assert result.bootstrap_p == pytest.approx(p, abs=0.02)
        assert result.randomisation_p == pytest.approx(p, abs=0.02)


def test_the_bootstrap_test_is_sakais_studentised_test() -> None:
    values = [0.3, -0.1, 0.4, 0.0, 0.25, 0.6, -0.2, 0.1]
    [result] = run_paired_tests(ids(len(values)), column(values), MANY)
    centred = np.array(values) - np.mean(values)
    draws = np.random.default_rng(99).choice(centred, (200_000, len(values)))
    with np.errstate(divide="ignore"):
        t = np.abs(draws.mean(axis=1)) / draws.std(axis=1, ddof=1)
    assert result.bootstrap_p == pytest.approx((t >= np.mean(values) / np.std(values, ddof=1)).mean(), abs=0.01)


def test_constant_differences_have_no_bootstrap_interval_and_p_value() -> None:
    differences = np.array([[0.0, 0.5]] * 4)
    zero, constant = run_paired_tests(ids(4), differences, MANY)
    assert (zero.interval, zero.bootstrap_p, zero.randomisation_p) == (None, None, 1)
    # all signs equal: 2 of 16 patterns
    assert (constant.interval, constant.bootstrap_p) == (None, None)
    assert constant.randomisation_p == pytest.approx(2 / 16, abs=0.02)


def test_p_values_are_never_0() -> None:
    random = np.random.default_rng(1)
    differences = random.normal(5, 1, (40, 2))
    results = run_paired_tests(ids(40), differences, BootstrapSettings(resamples=99))
    assert [(result.bootstrap_p, result.randomisation_p) for result in results] == [(0.01, 0.01)] * 2


def test_an_interval_equals_scipys_and_is_none_for_constant_values() -> None:
    values = np.random.default_rng(2).random((80, 2))
    values[:, 1] = 0.00199  # sums of this constant differ by rounding
    varying, constant = bootstrap_intervals(ids(80), values, MANY)
    oracle = stats.bootstrap((values[:, 0],), np.mean, method="percentile", n_resamples=20_000).confidence_interval
    assert varying is not None
    assert (varying.low, varying.high) == pytest.approx((oracle.low, oracle.high), abs=0.005)
    assert constant is None
