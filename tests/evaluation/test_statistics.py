"""Intervals, tests and agreement are those of SciPy, statsmodels and krippendorff; what is undefined is None."""

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
from agent.evaluation.statistics import (
    BINS,
    LEAST_DISCORDANT,
    BootstrapSettings,
    ClusterBootstrap,
    Interval,
    adjust_holm,
    bin_name,
    bin_of,
    krippendorff_alpha,
    mcnemar_exact,
    ratio,
    wilson_interval,
)

RESAMPLES = 200
COUNT = st.integers(0, 500)


@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_is_that_of_statsmodels(counts: tuple[int, int]) -> None:
    found = wilson_interval(*counts)
    low, high = proportion_confint(*counts, method="wilson")
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))
    assert found.low <= counts[0] / counts[1] <= found.high


@pytest.mark.parametrize("successes", [3, -1])
def test_what_is_no_share_is_refused_and_of_nothing_nothing_is_known(successes: int) -> None:
    with pytest.raises(ValueError, match="successes among"):
        wilson_interval(successes, 2)
    assert wilson_interval(0, 0) == Interval(0.0, 1.0)


@pytest.mark.parametrize(("library", "use"), [("scipy", lambda: mcnemar_exact(1, 2)), ("numpy", lambda: ratio(1, 2))])
def test_a_missing_library_is_named_with_its_remedy(library: str, use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name.split(".")[0] == library:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    remedy = rf"{library}.* is not installed: pip install 'test-driven-annotator\[stats\]"
    with pytest.raises(ExtraMissing, match=remedy) as raised:
        use()
    assert isinstance(raised.value, UsageError)


def shares(resampling: ClusterBootstrap, items: list[int]) -> Interval | None:
    """Return the interval of the mean of items."""
    sums = resampling.resample_sums([(item, 1) for item in items], 2)
    return resampling.percentile_interval(ratio(sums[:, 0], sums[:, 1]))


def scipys(items: list[int], clusters: list[str], seed: int) -> Any:
    """Return SciPy's percentile interval of the mean over clusters, drawn by the same generator."""
    names = sorted(set(clusters))
    hits = np.array([sum(x for x, c in zip(items, clusters, strict=True) if c == name) for name in names])
    sizes = np.array([clusters.count(name) for name in names])
    found = bootstrap(
        (np.arange(len(names)),),
        lambda drawn, axis: hits[drawn].sum(axis=axis) / sizes[drawn].sum(axis=axis),
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return found.confidence_interval


@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from("abcdefg")), min_size=2, max_size=40), st.integers(0, 99))
def test_the_bootstrap_is_scipys_over_clusters(drawn: list[tuple[int, str]], seed: int) -> None:
    items, clusters = [x for x, _ in drawn], [c for _, c in drawn]
    found = shares(ClusterBootstrap(clusters, BootstrapSettings(seed, RESAMPLES)), items)
    if found is None:
        means = {c: np.mean([x for x, d in drawn if d == c]) for c in clusters}
        assert len(means) < 2 or len(set(means.values())) == 1
    else:
        low, high = scipys(items, clusters, seed)
        assert (found.low, found.high) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))


def test_equal_seeds_draw_alike_in_any_order_and_others_do_not() -> None:
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
def test_resampling_that_says_nothing_gives_no_interval(items: list[int], clusters: list[str]) -> None:
    assert shares(ClusterBootstrap(clusters, BootstrapSettings(resamples=50)), items) is None


def test_a_statistic_undefined_in_many_resamples_has_no_interval() -> None:
    resampling = ClusterBootstrap([str(number) for number in range(20)], BootstrapSettings(resamples=100))
    values = np.arange(100.0)
    values[:5] = np.nan
    few = resampling.percentile_interval(values)
    assert few is not None
    assert few.low == pytest.approx(np.quantile(values[5:], 0.025), abs=1e-9)
    values[5] = np.nan
    assert resampling.percentile_interval(values) is None


def test_what_cannot_be_resampled_is_refused() -> None:
    with pytest.raises(ValueError, match="1 items, but the clusters of 2"):
        ClusterBootstrap(["a", "b"]).resample_sums([[1]], 1)


def test_a_quotient_by_zero_is_undefined() -> None:
    assert np.isnan(ratio([1, 0], [0, 0])).all()
    assert float(ratio(1, 4)) == 0.25


@given(COUNT, COUNT)
def test_mcnemar_is_that_of_statsmodels(only_first: int, only_second: int) -> None:
    expected = mcnemar([[7, only_first], [only_second, 7]], exact=True).pvalue
    assert mcnemar_exact(only_first, only_second) == pytest.approx(expected, abs=1e-9)
    assert mcnemar_exact(0, 0) == 1.0
    assert mcnemar_exact(LEAST_DISCORDANT, 0) < 0.05 <= mcnemar_exact(LEAST_DISCORDANT - 1, 0)


@pytest.mark.slow
@settings(max_examples=12)  # statsmodels takes 50 ms for one
@given(st.lists(st.floats(0, 1), max_size=30))
def test_holm_is_that_of_statsmodels(p_values: list[float]) -> None:
    expected = list(multipletests(p_values, method="holm")[1]) if p_values else []
    assert adjust_holm(p_values) == pytest.approx(expected, abs=1e-9)


def test_what_is_no_probability_and_no_count_is_refused() -> None:
    with pytest.raises(ValueError, match="p-value"):
        adjust_holm([0.1, float("nan")])
    with pytest.raises(ValueError, match="negative"):
        mcnemar_exact(3, -1)


def items(annotators: int) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    return st.lists(st.tuples(*[st.sampled_from([0, 1, None])] * annotators), max_size=60)


@given(st.integers(2, 5).flatmap(items), st.randoms())
def test_alpha_is_that_of_krippendorff_in_any_order(ratings: list[tuple[Any, ...]], random: Any) -> None:
    found = krippendorff_alpha(ratings)
    several = [[label for label in item if label is not None] for item in ratings]
    comparable = {label for labels in several if len(labels) > 1 for label in labels}
    assert (found is None) == (len(comparable) < 2)
    if found is not None:
        data = np.array(ratings, dtype=float).T
        expected = krippendorff.alpha(reliability_data=data, level_of_measurement="nominal")
        assert found == pytest.approx(expected, abs=1e-9)
    shuffled = [random.sample(item, len(item)) for item in random.sample(ratings, len(ratings))]
    assert krippendorff_alpha(shuffled) == pytest.approx(found, abs=1e-9)


def test_every_edge_is_in_the_bin_that_begins_with_it() -> None:
    assert [bin_of(number / BINS) for number in range(BINS + 1)] == [*range(BINS), BINS - 1]
    assert [bin_name(number) for number in (0, 8, 9)] == ["[0.0, 0.1)", "[0.8, 0.9)", "[0.9, 1.0]"]
