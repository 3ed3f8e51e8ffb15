"""A number and its noun agree, and what is wrong with a value is said in one line, without the value."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from agent.types import Usage
from agent.wording import describe_error, plural


@pytest.mark.parametrize(
    ("number", "told"), [(0, "0 pairs"), (1, "1 pair"), (2, "2 pairs"), (400_000, "400,000 pairs")]
)
def test_one_is_singular_and_large_numbers_have_separators(number: int, told: str) -> None:
    assert plural(number, "pair") == told


def test_a_failed_validation_shows_its_first_error_and_counts_the_others() -> None:
    with pytest.raises(ValidationError) as one:
        Usage.model_validate({"calls": -1})
    assert describe_error(one.value).startswith("calls: ")
    with pytest.raises(ValidationError) as three:
        Usage.model_validate({"calls": -1, "input_tokens": "x", "cost_usd": -2})
    assert re.fullmatch(r"calls: .* \(and 2 more .*\)", describe_error(three.value))
    with pytest.raises(ValidationError) as nowhere:
        Usage.model_validate([])
    assert "dictionary" in describe_error(nowhere.value)
