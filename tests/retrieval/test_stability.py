from __future__ import annotations

import numpy as np
import pytest

from agent.retrieval.stability import cronbach_alpha, mean_variance, stability

# CoSQA+ v1, Table 8: MMRR of UniXcoder, CodeT5+ and CodeBERT on queries with 2, 3, 4 and 5 relevant codes
TABLE_8 = [[0.192, 0.213, 0.229, 0.273], [0.124, 0.141, 0.159, 0.193], [0.265, 0.265, 0.275, 0.301]]


def test_alpha_of_table_8_is_the_one_that_v1_prints() -> None:
    assert cronbach_alpha(TABLE_8) == pytest.approx(0.956, abs=0.0005)


def test_no_convention_gives_the_variance_that_v1_prints() -> None:
    assert mean_variance(TABLE_8, sample=True) == pytest.approx(0.00078, abs=5e-6)
    assert mean_variance(TABLE_8, sample=False) == pytest.approx(0.00059, abs=5e-6)
    assert np.var(TABLE_8, axis=1).sum() / 4 == pytest.approx(0.0004, abs=5e-5)


def test_alpha_is_that_of_the_covariance_matrix_with_models_as_items() -> None:
    scores = np.random.default_rng(0).random((5, 7)) + np.arange(7) / 3
    covariance = np.cov(scores)
    alpha = 5 / 4 * (1 - np.trace(covariance) / covariance.sum())
    assert cronbach_alpha(scores.tolist()) == pytest.approx(alpha)


@pytest.mark.parametrize("scores", [[], [[0.1, 0.2]], [[0.1], [0.2]], [[0.1, 0.2], [0.2, 0.1]]])
def test_alpha_of_one_model_or_test_set_or_of_equal_sums_is_none(scores: list[list[float]]) -> None:
    assert cronbach_alpha(scores) is None


def test_test_sets_are_the_queries_with_two_to_five_relevant_codes() -> None:
    relevant = [1, 2, 2, 3, 6]
    found = stability("MMRR", relevant, {"a": [0.9, 0.2, 0.4, 0.5, 0.9], "b": [0.9, 0.1, 0.1, 0.3, 0.9]})
    assert found is not None
    assert found.queries == {2: 2, 3: 1}
    assert found.means == {"a": pytest.approx((0.3, 0.5)), "b": pytest.approx((0.1, 0.3))}
    assert (found.sample_variance, found.population_variance) == pytest.approx((0.02, 0.01))


def test_one_searcher_or_one_test_set_has_no_stability() -> None:
    assert stability("RR", [2, 3], {"a": [0.1, 0.2]}) is None
    assert stability("RR", [1, 2], {"a": [0.1, 0.2], "b": [0.1, 0.2]}) is None
