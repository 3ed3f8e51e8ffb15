"""McNemar's exact test and Holm's adjustment are those of statsmodels."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from agent.evaluation.statistics import holm, least_discordant, mcnemar_exact

COUNT = st.integers(0, 500)


@settings(deadline=None)
@given(COUNT, COUNT)
def test_mcnemar_is_that_of_statsmodels(only_first: int, only_second: int) -> None:
    expected = mcnemar([[7, only_first], [only_second, 7]], exact=True).pvalue
    assert mcnemar_exact(only_first, only_second) == pytest.approx(expected, abs=1e-9)


def test_annotators_who_never_differ_are_not_told_apart() -> None:
    assert mcnemar_exact(0, 0) == 1.0


def test_fewer_than_six_discordant_pairs_cannot_reach_five_percent() -> None:
    assert least_discordant() == 6
    assert mcnemar_exact(5, 0) > 0.05 > mcnemar_exact(6, 0)


@settings(deadline=None)
@given(st.floats(1e-12, 0.999))
def test_the_least_number_of_discordant_pairs_is_the_least(alpha: float) -> None:
    least = least_discordant(alpha)
    assert mcnemar_exact(least, 0) < alpha <= mcnemar_exact(least - 1, 0)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_holm_is_that_of_statsmodels(p_values: list[float]) -> None:
    assert holm(p_values) == pytest.approx(list(multipletests(p_values, method="holm")[1]), abs=1e-9)


def test_no_comparison_needs_no_adjustment() -> None:
    assert holm([]) == []


def test_what_is_no_probability_and_no_count_is_refused() -> None:
    with pytest.raises(ValueError, match="p-value"):
        holm([0.1, float("nan")])
    with pytest.raises(ValueError, match="negative"):
        mcnemar_exact(3, -1)
    with pytest.raises(ValueError, match="alpha"):
        least_discordant(0)
