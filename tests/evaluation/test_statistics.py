"""The bootstrap over clusters is SciPy's over clusters, and says when it can tell nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import bootstrap

from agent.evaluation.statistics import ClusterBootstrap, ratio

RESAMPLES = 200


def share(items: Sequence[int]) -> float | None:
    return sum(items) / len(items) if items else None


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


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from("abcdefg")), min_size=2, max_size=40), st.integers(0, 99))
def test_the_interval_is_scipys_over_clusters(drawn: list[tuple[int, str]], seed: int) -> None:
    items, clusters = [x for x, _ in drawn], [c for _, c in drawn]
    resampling = ClusterBootstrap(clusters, seed=seed, resamples=RESAMPLES)
    found = resampling.interval(items, share)
    sums = resampling.sums([(x, 1) for x in items])
    assert resampling.percentiles(ratio(sums[:, 0], sums[:, 1])) == found
    if found is None:
        means = {c: share([x for x, d in drawn if d == c]) for c in clusters}
        assert len(means) < 2 or len(set(means.values())) == 1
    else:
        low, high = scipys(items, clusters, seed)
        assert (found.low, found.high) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))


def test_pairs_of_one_query_widen_the_interval() -> None:
    items = [query % 2 for query in range(20) for _ in range(10)]
    by_query = ClusterBootstrap([str(query) for query in range(20) for _ in range(10)]).interval(items, share)
    by_pair = ClusterBootstrap([str(pair) for pair in range(200)]).interval(items, share)
    assert by_query is not None
    assert by_pair is not None
    assert by_query.high - by_query.low > 2 * (by_pair.high - by_pair.low)


def test_equal_seeds_draw_alike_and_others_do_not() -> None:
    clusters = [str(number) for number in range(30)]
    rows = [[number] for number in range(30)]
    first, again, other = (ClusterBootstrap(clusters, seed=seed, resamples=50).sums(rows) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_the_order_of_items_does_not_matter() -> None:
    items = [(f"q{number % 7}", [number % 3, 1]) for number in range(50)]
    sums = [
        ClusterBootstrap([cluster for cluster, _ in order], resamples=50).sums([row for _, row in order])
        for order in (items, items[::-1])
    ]
    assert (sums[0] == sums[1]).all()


@pytest.mark.parametrize(
    ("items", "clusters"),
    [([], []), ([0, 1], ["a", "a"]), ([1, 1, 1], ["a", "b", "c"])],
    ids=["no item", "one cluster", "nothing varies"],
)
def test_resampling_that_tells_nothing_gives_no_interval(items: list[int], clusters: list[str]) -> None:
    assert ClusterBootstrap(clusters, resamples=50).interval(items, share) is None


def test_a_statistic_undefined_in_many_resamples_has_no_interval() -> None:
    resampling = ClusterBootstrap([str(number) for number in range(20)], resamples=100)
    values = [float(number) for number in range(100)]
    assert resampling.percentiles([float("nan")] * 6 + values[6:]) is None
    few = resampling.percentiles([float("nan")] * 5 + values[5:])
    assert few is not None
    assert few.low == pytest.approx(np.quantile(values[5:], 0.025), abs=1e-9)


def test_what_cannot_be_resampled_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 resample"):
        ClusterBootstrap(["a"], resamples=0)
    with pytest.raises(ValueError, match="1 items, but the clusters of 2"):
        ClusterBootstrap(["a", "b"]).sums([[1]])


def test_a_quotient_by_zero_is_undefined() -> None:
    assert np.isnan(ratio([1, 0], [0, 0])).all()
    assert float(ratio(1, 4)) == 0.25
