"""A day means until its end, a moment what it says."""

from __future__ import annotations

import pytest

from agent.errors import UsageError
from agent.sandbox.moments import read_moment


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2016-12-31", "2017-01-01T00:00:00+00:00"),
        (" 20161231 ", "2017-01-01T00:00:00+00:00"),
        ("2016-12-31T12:00:00Z", "2016-12-31T12:00:00+00:00"),
        ("2016-12-31 12:00:00", "2016-12-31T12:00:00+00:00"),
        ("2016-12-31T23:30:00-02:00", "2017-01-01T01:30:00+00:00"),
    ],
)
def test_a_date_is_read(text: str, moment: str) -> None:
    assert read_moment(text).isoformat() == moment


@pytest.mark.parametrize("text", ["", "2016", "31.12.2016", "2016-13-01", "yesterday", "0001-01-01T00:00:00+14:00"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no date: expected one such as 2016-12-31"):
        read_moment(text)
