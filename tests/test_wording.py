"""A number and its noun agree."""

from __future__ import annotations

import pytest

from agent.wording import counted


@pytest.mark.parametrize(
    ("number", "told"), [(0, "0 pairs"), (1, "1 pair"), (2, "2 pairs"), (400_000, "400,000 pairs")]
)
def test_one_is_singular_and_large_numbers_are_parted(number: int, told: str) -> None:
    assert counted(number, "pair") == told


def test_a_plural_may_be_of_its_own() -> None:
    assert (counted(1, "query", "queries"), counted(3, "query", "queries")) == ("1 query", "3 queries")
