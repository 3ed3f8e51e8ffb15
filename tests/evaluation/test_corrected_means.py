"""Means of labels that are corrected by reviews of random queries."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from agent.evaluation.corrected_means import CELLS, LabelSums, estimate_means
from agent.evaluation.statistics import BootstrapSettings, Interval
from tests.benchmarks.search_scores import LIMIT, SHAPES, Shape, make_sums, simulate

SETTINGS = BootstrapSettings(resamples=20_000)


def make_single_labels(ones: int, zeros: int, reviewed: int, wrong: int) -> LabelSums:
    """Make queries with one label each. The reviewed labels are ones, and the first `wrong` of them are wrong."""
    weights = np.zeros((ones + zeros, 1, len(CELLS)))
    weights[:ones, 0, CELLS.index((1, 1))] = weights[ones:, 0, CELLS.index((0, 1))] = 1
    wrong_weights = weights[:reviewed] * (np.arange(reviewed) < wrong)[:, None, None]
    return LabelSums(weights[..., CELLS.index((1, 1))], weights, wrong_weights)


@pytest.mark.parametrize("wrong", [0, 1, 7])
def test_single_labels_have_the_interval_of_the_beta_posterior(wrong: int) -> None:
    ((predicted, mean, interval),) = estimate_means(make_single_labels(100, 0, 40, wrong), SETTINGS)
    shape = 1 - 2 / 40
    posterior = stats.beta(shape * (40 - wrong) + 0.5, shape * wrong + 0.5)
    expected = Interval(posterior.ppf(0.025), max(posterior.ppf(0.975), 1 - wrong / 40))
    assert vars(interval) == pytest.approx(vars(expected), abs=0.005)
    assert (predicted, mean) == (1, 1 - wrong / 40)


def test_labels_without_reviews_widen_the_interval_and_keep_the_estimate() -> None:
    ((_, mean, interval),) = estimate_means(make_single_labels(100, 100, 40, 4), SETTINGS)
    assert mean == pytest.approx(0.45)
    assert interval.high > 0.9


def test_reviews_of_all_queries_give_the_mean_of_the_reviews() -> None:
    sums, correct = make_sums(Shape(60, wrong=1, rate=0.1, queries=60), np.random.default_rng(1))
    assert [mean for _, mean, _ in estimate_means(sums)] == pytest.approx(correct.mean(axis=0).tolist())


def test_equal_rankings_have_no_difference() -> None:
    sums = LabelSums(np.zeros((50, 1)), np.zeros((50, 1, 4)), np.zeros((30, 1, 4)))
    assert estimate_means(sums) == [(0, 0, Interval(0, 0))]


@pytest.mark.parametrize("shape", [SHAPES[5], SHAPES[-7]], ids=str)
def test_intervals_cover_the_correct_scores_in_simulations(shape: Shape) -> None:
    assert min(simulate(shape._replace(queries=200), 150, resamples=200).values()) >= LIMIT - 0.04
