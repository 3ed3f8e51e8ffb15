"""Tests for scores and agreement against statsmodels and SciPy."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import bootstrap
from statsmodels.stats.inter_rater import cohens_kappa
from statsmodels.stats.proportion import proportion_confint

from agent.evaluation.labels import Rater
from agent.evaluation.measures import FORMULAS, Confusion, Scores, compute_measures, measure_agreement, score
from agent.evaluation.statistics import BootstrapSettings, ClusterBootstrap, krippendorff_alpha

# warnings of the reference libraries about undefined statistics
pytestmark = [
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:The BCa confidence interval cannot be calculated"),
]
LabelPairs = list[tuple[int | None, int]]
JUDGED = st.lists(st.tuples(st.sampled_from([0, 1, None]), st.integers(0, 1)), min_size=1, max_size=60)


def score_pairs(label_pairs: LabelPairs, queries: dict[str, str] | None = None, **options: Any) -> Scores:
    predicted = {str(number): label for number, (label, _) in enumerate(label_pairs)}
    gold = {str(number): label for number, (_, label) in enumerate(label_pairs)}
    return score(predicted, gold, queries or {}, BootstrapSettings(**{"resamples": 50, **options}))


@given(JUDGED)
def test_scores_match_their_definitions(label_pairs: LabelPairs) -> None:
    scores = score_pairs(label_pairs)
    labelled = [pair for pair in label_pairs if pair[0] is not None]
    right = sum(a == b for a, b in label_pairs)
    assert (scores.pairs, scores.labelled) == (len(label_pairs), len(labelled))
    assert scores.coverage == pytest.approx(len(labelled) / len(label_pairs), abs=1e-9)
    assert scores.accuracy == pytest.approx(right / len(label_pairs), abs=1e-9)
    tp = label_pairs.count((1, 1))
    for name, part, total in (
        ("selective_accuracy", right, len(labelled)),
        ("precision", tp, sum(a == 1 for a, _ in label_pairs)),
        ("recall", tp, sum(b == 1 for _, b in label_pairs)),
        ("f1", 2 * tp, sum((a == 1) + (b == 1) for a, b in label_pairs)),
    ):
        value = getattr(scores, name)
        assert value == (pytest.approx(part / total, abs=1e-9) if total else None), name
        if total and name != "f1":
            interval = scores.wilson[name]
            expected = proportion_confint(part, total, method="wilson")
            assert (interval.low, interval.high) == pytest.approx(expected, abs=1e-9)


@given(JUDGED)
def test_kappa_matches_statsmodels_and_alpha_is_krippendorffs(label_pairs: LabelPairs) -> None:
    scores = score_pairs(label_pairs)
    table = [[label_pairs.count((a, b)) for b in (0, 1)] for a in (0, 1)]
    if scores.kappa is None:
        # undefined: no labels, or both annotators use a single label
        assert (np.array(table) > 0).sum() == int(np.any(table))
        assert table[0][1] == table[1][0] == 0
    else:
        assert scores.kappa == pytest.approx(cohens_kappa(np.array(table)).kappa, abs=1e-9)
    assert scores.alpha == pytest.approx(krippendorff_alpha(label_pairs), abs=1e-9)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from([0, 1, None]), st.integers(0, 1)), min_size=8, max_size=40))
def test_bootstrap_intervals_match_scipy(label_pairs: LabelPairs) -> None:
    queries = {str(number): f"q{number % 6}" for number in range(len(label_pairs))}
    scores = score_pairs(label_pairs, queries, seed=3)
    assert scores.queries == 6
    for name, formula in FORMULAS.items():

        def statistic(drawn: Any, formula: Any = formula) -> float:
            of_drawn = [pair for query in drawn for pair in label_pairs[int(query) :: 6]]
            counts = (of_drawn.count((a, b)) for a, b in ((1, 1), (1, 0), (0, 1), (0, 0), (None, 1), (None, 0)))
            return float(formula(Confusion(*counts)))

        with np.errstate(all="ignore"):
            values = bootstrap(
                (np.arange(6),),
                statistic,
                n_resamples=50,
                vectorized=False,
                method="percentile",
                rng=np.random.default_rng(3),
            ).bootstrap_distribution
        defined = values[~np.isnan(values)]
        interval = scores.bootstrap[name]
        if interval is None:
            assert len(defined) < 0.95 * 50 or len(set(defined)) == 1
        else:
            expected = np.quantile(defined, [0.025, 0.975])
            assert (interval.low, interval.high) == pytest.approx(expected, abs=1e-9)


def test_undecided_pairs_count_as_wrong_and_missed_but_not_in_selective_accuracy() -> None:
    scores = score_pairs([(1, 1), (None, 1), (0, 0), (None, 0)])
    assert (scores.coverage, scores.accuracy, scores.selective_accuracy) == (0.5, 0.5, 1.0)
    assert (scores.precision, scores.recall, scores.kappa) == (1.0, 0.5, 1.0)
    assert scores.confusion == Confusion(tp=1, tn=1, null_positive=1, null_negative=1)
    undefined = score_pairs([(0, 1), (0, 0), (None, 0)])
    assert (undefined.precision, undefined.recall, undefined.f1) == (None, 0.0, 0.0)
    assert ("precision" in undefined.wilson, undefined.bootstrap["precision"]) == (False, None)


def test_measures_without_common_pairs_are_undefined() -> None:
    scores = score({"a": 1}, {"b": 0}, {})
    assert (scores.pairs, scores.queries, scores.gold_only, scores.predicted_only) == (0, 0, 1, 1)
    assert set(scores.bootstrap.values()) == {None}
    assert not scores.wilson
    assert set(compute_measures(scores.confusion).values()) == {None}


def test_unmatched_pairs_are_counted_and_pairs_without_a_query_are_clusters() -> None:
    scores = score({"a": 1, "b": None, "x": 0}, {"a": 1, "b": 0, "y": 1, "z": 1}, {"a": "q", "b": "q"})
    assert (scores.pairs, scores.gold_only, scores.predicted_only) == (2, 2, 1)
    scores = score({"a": 1, "b": 1, "c": 0}, {"a": 1, "b": 0, "c": 0}, {"a": "c"}, BootstrapSettings(resamples=10))
    assert (scores.queries, scores.without_query) == (3, 2)


def test_scores_depend_only_on_the_seed_and_round_trip_through_json() -> None:
    label_pairs: LabelPairs = [(number % 3 % 2, number % 2) for number in range(90)]
    queries = {str(number): str(number // 4) for number in range(90)}
    first, again, other = (score_pairs(label_pairs, queries, seed=seed) for seed in (5, 5, 6))
    assert first == again
    assert first.bootstrap != other.bootstrap
    predicted, gold = ({str(n): pair[side] for n, pair in reversed(list(enumerate(label_pairs)))} for side in (0, 1))
    assert score(predicted, gold, queries, BootstrapSettings(5, 50)) == first  # type: ignore[arg-type]
    assert Scores.model_validate_json(first.model_dump_json()) == first


def test_labels_other_than_0_and_1_are_rejected() -> None:
    with pytest.raises(ValueError, match="label 2"):
        score({"a": 2}, {"a": 1}, {})


ITEMS = st.lists(st.tuples(*[st.sampled_from([0, 1, None])] * 3), min_size=1, max_size=30)


@pytest.mark.slow
@given(ITEMS)
def test_agreement_and_its_intervals_match_resampled_statistics(items: list[tuple[Any, ...]]) -> None:
    ids = [f"{number:03}" for number in range(len(items))]
    queries = {pair: f"q{number % 5}" for number, pair in enumerate(ids)}
    annotators = [
        Rater(name, {pair: item[place] for pair, item in zip(ids, items, strict=True)})
        for place, name in enumerate("xyz")
    ]
    agreement = measure_agreement(annotators, queries, BootstrapSettings(resamples=100))
    resampling = ClusterBootstrap([f"query {queries[pair]}" for pair in ids], BootstrapSettings(resamples=100))
    # how often each item is drawn in each resample
    draws = resampling.resample_sums(np.eye(len(items), dtype=int).tolist(), len(items))

    def expected(statistic: Any) -> Any:
        values = [statistic([item for item, n in zip(items, drawn, strict=True) for _ in range(n)]) for drawn in draws]
        interval = resampling.percentile_interval(np.array(values, dtype=float))
        return None if interval is None else pytest.approx((interval.low, interval.high), abs=1e-9)

    assert agreement.alpha == krippendorff_alpha(items)
    interval = agreement.alpha_interval
    assert (interval and (interval.low, interval.high)) == expected(krippendorff_alpha)
    for pair in agreement.pairwise:
        places = "xyz".index(pair.first), "xyz".index(pair.second)

        def kappa(drawn: list[tuple[Any, ...]], places: tuple[int, int] = places) -> float | None:
            counts = Counter((item[places[0]], item[places[1]]) for item in drawn)
            return compute_measures(Confusion(counts[1, 1], counts[1, 0], counts[0, 1], counts[0, 0]))["kappa"]

        both = [(item[places[0]], item[places[1]]) for item in items if None not in (item[places[0]], item[places[1]])]
        assert (pair.both, pair.kappa) == (len(both), kappa(items))
        assert pair.agreement == (pytest.approx(np.mean([a == b for a, b in both])) if both else None)
        interval = pair.kappa_interval
        assert (interval and (interval.low, interval.high)) == expected(kappa)


def test_annotators_are_compared_on_pairs_that_both_labelled() -> None:
    agreement = measure_agreement([Rater("x", {"a": 1, "b": 0, "c": None}), Rater("y", {"a": 1, "c": 1, "d": 0})], {})
    (pair,) = agreement.pairwise
    assert (agreement.pairs, agreement.comparable, pair.both, pair.agreement, pair.kappa) == (4, 1, 1, 1.0, None)
    apart = measure_agreement([Rater("x", {"a": 1}), Rater("y", {"b": 1})], {})
    assert (apart.comparable, apart.alpha, apart.alpha_interval, apart.pairwise[0].both) == (0, None, None, 0)
