"""Agreement is that of statsmodels and krippendorff; where it is undefined, it is None."""

from __future__ import annotations

from typing import Any

import krippendorff
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from statsmodels.stats.inter_rater import cohens_kappa

from agent.evaluation.agreement import cohen_kappa, krippendorff_alpha, observed_agreement

# of statsmodels, where kappa has no variance
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
LABEL = st.sampled_from([0, 1, 2, None])


def rows(annotators: int) -> st.SearchStrategy[list[list[Any]]]:
    columns = st.lists(st.tuples(*[LABEL] * annotators), min_size=1, max_size=60)
    return columns.map(lambda items: [list(row) for row in zip(*items, strict=True)])


@settings(deadline=None)
@given(rows(2))
def test_kappa_is_that_of_statsmodels(ratings: list[list[Any]]) -> None:
    table = np.zeros((3, 3))
    for a, b in zip(*ratings, strict=True):
        if a is not None and b is not None:
            table[a, b] += 1
    found = cohen_kappa(*ratings)
    if found is None:
        # nothing to compare, or both gave one label throughout
        assert (table > 0).sum() == int(table.any())
        assert not table.any() or np.trace(table) == table.sum()
    else:
        assert found == pytest.approx(cohens_kappa(table).kappa, abs=1e-9)


@settings(deadline=None)
@given(rows(2))
def test_agreement_is_the_share_labelled_alike_by_both(ratings: list[list[Any]]) -> None:
    both = [(a, b) for a, b in zip(*ratings, strict=True) if a is not None and b is not None]
    found = observed_agreement(*ratings)
    if both:
        first, second = np.array(both).T
        assert found == pytest.approx(float(np.mean(first == second)), abs=1e-9)
    else:
        assert found is None


@settings(deadline=None)
@given(st.integers(2, 5).flatmap(rows))
def test_alpha_is_that_of_krippendorff(ratings: list[list[Any]]) -> None:
    found = krippendorff_alpha(ratings)
    comparable = {
        label
        for item in zip(*ratings, strict=True)
        if sum(each is not None for each in item) > 1
        for label in item
        if label is not None
    }
    assert (found is None) == (len(comparable) < 2)
    if found is not None:
        data = np.array(ratings, dtype=float)
        expected = krippendorff.alpha(reliability_data=data, level_of_measurement="nominal")
        assert found == pytest.approx(expected, abs=1e-9)


@settings(deadline=None)
@given(st.integers(2, 4).flatmap(rows), st.randoms())
def test_neither_the_order_of_annotators_nor_of_items_matters_to_alpha(ratings: list[list[Any]], random: Any) -> None:
    items = list(zip(*ratings, strict=True))
    random.shuffle(items)
    shuffled = [list(row) for row in zip(*items, strict=True)]
    random.shuffle(shuffled)
    assert krippendorff_alpha(shuffled) == pytest.approx(krippendorff_alpha(ratings), abs=1e-9)


def test_the_example_of_krippendorff_2011_is_reproduced() -> None:
    observers = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
        [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
    ]
    alpha = krippendorff_alpha(observers)
    assert alpha is not None
    assert round(alpha, 3) == 0.743


def test_one_category_is_no_agreement_beyond_chance() -> None:
    assert observed_agreement([1, 1], [1, 1]) == 1.0
    assert cohen_kappa([1, 1], [1, 1]) is None
    assert krippendorff_alpha([[1, 1], [1, 1]]) is None


def test_nothing_in_common_is_undefined() -> None:
    assert observed_agreement([1, None], [None, 0]) is None
    assert cohen_kappa([1, None], [None, 0]) is None
    assert krippendorff_alpha([[1, None], [None, 0]]) is None
    assert krippendorff_alpha([]) is None


def test_rows_of_different_length_are_refused() -> None:
    for measure in (observed_agreement, cohen_kappa):
        with pytest.raises(ValueError, match=r"shorter|longer"):
            measure([1], [1, 0])
    with pytest.raises(ValueError, match=r"shorter|longer"):
        krippendorff_alpha([[1], [1, 0]])


@settings(deadline=None)
@given(rows(2))
def test_perfect_agreement_is_one(ratings: list[list[Any]]) -> None:
    assume(len({label for label in ratings[0] if label is not None}) > 1)
    assert cohen_kappa(ratings[0], ratings[0]) == 1.0
    assert krippendorff_alpha([ratings[0], ratings[0]]) == 1.0
