"""Agreement between annotators is that of their labels, its intervals those of the statistics resampled."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.evaluation.agreement import agree, cohen_kappa, krippendorff_alpha, observed_agreement
from agent.evaluation.labels import Annotator
from agent.evaluation.statistics import ClusterBootstrap

ITEMS = st.lists(st.tuples(*[st.sampled_from([0, 1, None])] * 3), min_size=1, max_size=30)


@settings(max_examples=40, deadline=None)
@given(ITEMS)
def test_alpha_kappa_and_intervals_are_those_of_the_statistics(items: list[tuple[Any, ...]]) -> None:
    ids = [f"{number:03}" for number in range(len(items))]
    queries = {pair: f"q{number % 5}" for number, pair in enumerate(ids)}
    annotators = [
        Annotator(name, {pair: item[place] for pair, item in zip(ids, items, strict=True)})
        for place, name in enumerate("xyz")
    ]
    found = agree(annotators, queries, resamples=100)
    rows = [list(row) for row in zip(*items, strict=True)]
    assert found.alpha == krippendorff_alpha(rows)
    resampling = ClusterBootstrap([f"query {queries[pair]}" for pair in ids], resamples=100)

    def close(interval: Any) -> Any:
        return None if interval is None else pytest.approx((interval.low, interval.high), abs=1e-9)

    def alpha_of(drawn: Any) -> float | None:
        return krippendorff_alpha([list(row) for row in zip(*drawn, strict=True)])

    interval = found.alpha_interval
    assert (interval and (interval.low, interval.high)) == close(resampling.interval(items, alpha_of))
    for pair in found.pairwise:
        first, second = rows["xyz".index(pair.first)], rows["xyz".index(pair.second)]
        assert (pair.agreement, pair.kappa) == (observed_agreement(first, second), cohen_kappa(first, second))
        interval = pair.kappa_interval
        expected = resampling.interval(
            list(zip(first, second, strict=True)),
            lambda drawn: cohen_kappa([a for a, _ in drawn], [b for _, b in drawn]),
        )
        assert (interval and (interval.low, interval.high)) == close(expected)


def test_annotators_are_compared_on_what_both_labelled() -> None:
    found = agree([Annotator("x", {"a": 1, "b": 0, "c": None}), Annotator("y", {"a": 1, "c": 1, "d": 0})], {})
    (pair,) = found.pairwise
    assert (found.pairs, found.comparable, pair.both, pair.agreement, pair.kappa) == (4, 1, 1, 1.0, None)


def test_annotators_with_nothing_in_common_have_no_agreement() -> None:
    found = agree([Annotator("x", {"a": 1}), Annotator("y", {"b": 1})], {})
    assert (found.comparable, found.alpha, found.alpha_interval, found.pairwise[0].both) == (0, None, None, 0)
