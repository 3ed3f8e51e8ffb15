"""Numbers agree with their nouns, and validation errors are described in one line without the value."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agent.evaluation.statistics import Interval
from agent.text import describe_error, escape_markdown, format_value, plural
from agent.types import Usage


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 pairs"), (1, "1 pair"), (2, "2 pairs"), (400_000, "400,000 pairs")]
)
def test_one_is_singular_and_large_numbers_have_separators(number: int, text: str) -> None:
    assert plural(number, "pair") == text


@given(st.text())
def test_markdown_is_one_line_without_markup(text: str) -> None:
    assert not re.search(r"(?<!\\)(?:\\\\)*[`*_<>#|~$&!\[\]\n]", escape_markdown(text))


def test_values_are_formatted_by_type() -> None:
    assert [*map(format_value, (None, 1234, 0.1234, Interval(0.1, 0.25)))] == ["–", "1,234", "0.123", "0.100 to 0.250"]


def test_a_failed_validation_shows_its_first_error_and_counts_the_others() -> None:
    with pytest.raises(ValidationError) as single:
        Usage.model_validate({"calls": -1})
    assert describe_error(single.value).startswith("calls: ")
    with pytest.raises(ValidationError) as several:
        Usage.model_validate({"calls": -1, "input_tokens": "x", "cost_usd": -2})
    assert re.fullmatch(r"calls: .* \(and 2 more .*\)", describe_error(several.value))
    with pytest.raises(ValidationError) as unlocated:
        Usage.model_validate([])
    assert "dictionary" in describe_error(unlocated.value)
