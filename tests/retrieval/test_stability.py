from __future__ import annotations

import numpy as np
import pytest

from agent.retrieval.significance import compute_cronbach_alpha, compute_stability

# CoSQA+ v1, Table 8: MMRR of UniXcoder, CodeT5+ and CodeBERT on queries with 2, 3, 4 and 5 relevant snippets
TABLE_8 = [[0.192, 0.213, 0.229, 0.273], [0.124, 0.141, 0.159, 0.193], [0.265, 0.265, 0.275, 0.301]]


def test_alpha_of_table_8_equals_the_published_value_but_no_variance_does() -> None:
    # one query per test set, whose value is the mean of the test set
    stability = compute_stability("MMRR", [2, 3, 4, 5], {str(number): model for number, model in enumerate(TABLE_8)})
    assert stability is not None
    assert stability.alpha == pytest.approx(0.956, abs=0.0005)
    assert stability.sample_variance == pytest.approx(0.00078, abs=5e-6)
    assert stability.population_variance == pytest.approx(0.00059, abs=5e-6)


def test_alpha_equals_the_covariance_formula_with_models_as_items() -> None:
    scores = np.random.default_rng(0).random((5, 7)) + np.arange(7) / 3
    covariance = np.cov(scores)
    alpha = 5 / 4 * (1 - np.trace(covariance) / covariance.sum())
    assert compute_cronbach_alpha(scores.tolist()) == pytest.approx(alpha)


def test_alpha_of_equal_sums_is_none() -> None:
    assert compute_cronbach_alpha([[0.5, 0.25], [0.25, 0.5]]) is None


def test_test_sets_group_queries_by_two_to_five_relevant_snippets() -> None:
    relevant = [1, 2, 2, 3, 6]
    stability = compute_stability("MMRR", relevant, {"a": [0.9, 0.2, 0.4, 0.5, 0.9], "b": [0.9, 0.1, 0.1, 0.3, 0.9]})
    assert stability is not None
    assert stability.queries == {2: 2, 3: 1}
    assert stability.means == {"a": pytest.approx((0.3, 0.5)), "b": pytest.approx((0.1, 0.3))}
    assert (stability.sample_variance, stability.population_variance) == pytest.approx((0.02, 0.01))


def test_one_searcher_or_one_test_set_has_no_stability() -> None:
    assert compute_stability("RR", [2, 3], {"a": [0.1, 0.2]}) is None
    assert compute_stability("RR", [1, 2], {"a": [0.1, 0.2], "b": [0.1, 0.2]}) is None
