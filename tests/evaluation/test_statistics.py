"""Tests for the statistics against SciPy, statsmodels and krippendorff."""

from __future__ import annotations

import builtins
from typing import Any

import krippendorff
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import bootstrap
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from agent.errors import ExtraMissing, UsageError
from agent.evaluation import lazy_numpy
from agent.evaluation.statistics import (
    MIN_DISCORDANT,
    BootstrapSettings,
    ClusterBootstrap,
    Interval,
    adjust_holm,
    divide,
    krippendorff_alpha,
    mcnemar_exact,
    wilson_interval,
)

RESAMPLES = 200
COUNT = st.integers(0, 500)


@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_intervals_match_statsmodels(counts: tuple[int, int]) -> None:
    interval = wilson_interval(*counts)
    low, high = proportion_confint(*counts, method="wilson")
    assert (interval.low, interval.high) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))
    assert interval.low <= counts[0] / counts[1] <= interval.high


@pytest.mark.parametrize("successes", [3, -1])
def test_wilson_intervals_reject_invalid_counts_and_accept_zero_trials(successes: int) -> None:
    with pytest.raises(ValueError, match=f" {successes}$"):
        wilson_interval(successes, 2)
    assert wilson_interval(0, 0) == Interval(0.0, 1.0)


@pytest.mark.parametrize(
    ("library", "use"), [("scipy", lambda: mcnemar_exact(1, 2)), ("numpy", lambda: type(lazy_numpy.np)().ones(1))]
)
def test_a_missing_library_is_reported_with_the_extra(library: str, use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name.split(".")[0] == library:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    remedy = rf"{library}.*'test-driven-annotator\[stats\]"
    with pytest.raises(ExtraMissing, match=remedy) as raised:
        use()
    assert isinstance(raised.value, UsageError)


def mean_interval(resampling: ClusterBootstrap, items: list[int]) -> Interval | None:
    """Return the interval of the mean of the items."""
    sums = resampling.resample_sums([(item, 1) for item in items], 2)
    return resampling.percentile_interval(divide(sums[:, 0], sums[:, 1]))


def scipy_interval(items: list[int], clusters: list[str], seed: int) -> Any:
    """Compute the percentile interval of the mean over clusters with SciPy and the same random numbers."""
    names = sorted(set(clusters))
    hits = np.array([sum(x for x, c in zip(items, clusters, strict=True) if c == name) for name in names])
    sizes = np.array([clusters.count(name) for name in names])
    interval = bootstrap(
        (np.arange(len(names)),),
        lambda drawn, axis: hits[drawn].sum(axis=axis) / sizes[drawn].sum(axis=axis),
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return interval.confidence_interval


@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from("abcdefg")), min_size=2, max_size=40), st.integers(0, 99))
def test_the_cluster_bootstrap_matches_scipy(drawn: list[tuple[int, str]], seed: int) -> None:
    items, clusters = [x for x, _ in drawn], [c for _, c in drawn]
    interval = mean_interval(ClusterBootstrap(clusters, BootstrapSettings(seed, RESAMPLES)), items)
    if interval is None:
        means = {c: np.mean([x for x, d in drawn if d == c]) for c in clusters}
        assert len(means) < 2 or len(set(means.values())) == 1
    else:
        low, high = scipy_interval(items, clusters, seed)
        assert (interval.low, interval.high) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))


def test_resamples_depend_on_the_seed_but_not_on_the_order() -> None:
    items = [(f"q{number % 7}", [number % 3, 1]) for number in range(50)]

    def sums(order: list[tuple[str, list[int]]], seed: int) -> Any:
        resampling = ClusterBootstrap([cluster for cluster, _ in order], BootstrapSettings(seed, 50))
        return resampling.resample_sums([row for _, row in order], 2)

    assert (sums(items, 1) == sums(items, 1)).all()
    assert (sums(items, 1) == sums(items[::-1], 1)).all()
    assert (sums(items, 1) != sums(items, 2)).any()


@pytest.mark.parametrize(
    ("items", "clusters"),
    [([], []), ([0, 1], ["a", "a"]), ([1, 1, 1], ["a", "b", "c"])],
    ids=["no item", "one cluster", "nothing varies"],
)
def test_intervals_without_variation_are_undefined(items: list[int], clusters: list[str]) -> None:
    assert mean_interval(ClusterBootstrap(clusters, BootstrapSettings(resamples=50)), items) is None


def test_a_statistic_that_is_often_undefined_has_no_interval() -> None:
    resampling = ClusterBootstrap([str(number) for number in range(20)], BootstrapSettings(resamples=100))
    values = np.arange(100.0)
    values[:5] = np.nan
    few = resampling.percentile_interval(values)
    assert few.low == pytest.approx(np.quantile(values[5:], 0.025), abs=1e-9)
    values[5] = np.nan
    assert resampling.percentile_interval(values) is None


def test_a_wrong_number_of_rows_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"\b1 rows? for 2 items"):
        ClusterBootstrap(["a", "b"]).resample_sums([[1]], 1)


def test_division_by_zero_is_nan() -> None:
    assert np.isnan(divide([1, 0], [0, 0])).all()
    assert float(divide(1, 4)) == 0.25


@given(COUNT, COUNT)
def test_mcnemar_matches_statsmodels(only_first: int, only_second: int) -> None:
    expected = mcnemar([[7, only_first], [only_second, 7]], exact=True).pvalue
    assert mcnemar_exact(only_first, only_second) == pytest.approx(expected, abs=1e-9)
    assert mcnemar_exact(0, 0) == 1.0
    assert mcnemar_exact(MIN_DISCORDANT, 0) < 0.05 <= mcnemar_exact(MIN_DISCORDANT - 1, 0)


@pytest.mark.slow
@settings(max_examples=12)  # statsmodels takes 50 ms per example
@given(st.lists(st.floats(0, 1), max_size=30))
def test_holm_matches_statsmodels(p_values: list[float]) -> None:
    expected = list(multipletests(p_values, method="holm")[1]) if p_values else []
    assert adjust_holm(p_values) == pytest.approx(expected, abs=1e-9)


def test_invalid_p_values_and_counts_are_rejected() -> None:
    with pytest.raises(ValueError, match="p-value"):
        adjust_holm([0.1, float("nan")])
    with pytest.raises(ValueError, match="negative"):
        mcnemar_exact(3, -1)


def items(annotators: int) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    return st.lists(st.tuples(*[st.sampled_from([0, 1, None])] * annotators), max_size=60)


@given(st.integers(2, 5).flatmap(items), st.randoms())
def test_alpha_matches_krippendorff_in_any_order(ratings: list[tuple[Any, ...]], random: Any) -> None:
    alpha = krippendorff_alpha(ratings)
    present = [[label for label in item if label is not None] for item in ratings]
    comparable = {label for labels in present if len(labels) > 1 for label in labels}
    assert (alpha is None) == (len(comparable) < 2)
    if alpha is not None:
        data = np.array(ratings, dtype=float).T
        expected = krippendorff.alpha(reliability_data=data, level_of_measurement="nominal")
        assert alpha == pytest.approx(expected, abs=1e-9)
    shuffled = [random.sample(item, len(item)) for item in random.sample(ratings, len(ratings))]
    assert krippendorff_alpha(shuffled) == pytest.approx(alpha, abs=1e-9)
