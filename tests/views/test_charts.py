"""Charts are plain data with colour names and without markup."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.text import is_hidden
from agent.views.charts import Dot, Segment, draw_intervals, draw_stacked_bars, format_label, format_row_label


@given(st.text())
def test_labels_contain_no_markup_or_hidden_characters_and_are_truncated(text: str) -> None:
    label = format_label(text)
    assert not set(label) & {"<", ">"}
    assert not any(map(is_hidden, label))
    plain = label.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    assert len(plain) <= 26


@given(st.text())
def test_row_labels_have_at_most_two_lines(text: str) -> None:
    lines = format_row_label(text).split("<br>")
    assert len(lines) <= 2
    assert not any(set(line) & {"<", ">"} or any(map(is_hidden, line)) for line in lines)
    plain = [line.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") for line in lines]
    assert max(map(len, plain)) <= 26


@pytest.mark.parametrize("name", ["label and test: passed, but 0", "decided by: arbitrate_with_evidence", "accuracy"])
def test_row_labels_that_fit_on_two_lines_are_complete(name: str) -> None:
    axis = draw_intervals([Dot(name, 0.9, 0.8, 0.95)], alt="", unit="")["layout"]["yaxis"]
    assert axis["ticktext"][0].replace("<br>", " ") == name


def test_segments_of_equal_name_and_colour_form_one_trace() -> None:
    chart = draw_stacked_bars(
        [("a", [Segment("x", 2, "good", "2"), Segment("y", 1, "bad", "1")]), ("b", [Segment("x", 3, "good", "3")])],
        alt="two rows", unit="pairs",
    )  # fmt: skip
    assert [(trace["name"], trace["x"], trace["y"]) for trace in chart["traces"]] == [
        ("x", [2, 3], [0, 1]),
        ("y", [1], [0]),
    ]
    assert [trace["marker"]["color"] for trace in chart["traces"]] == ["@good", "@bad"]
    assert chart["layout"]["yaxis"]["ticktext"] == ["a", "b"]


def test_segments_keep_the_order_of_the_first_row() -> None:
    rows = [("a", [Segment("x", 0, "good", "0"), Segment("y", 1, "bad", "1")]), ("b", [Segment("x", 1, "good", "1")])]
    assert [trace["name"] for trace in draw_stacked_bars(rows, alt="", unit="")["traces"]] == ["x", "y"]


def test_equally_truncated_names_stay_separate_rows() -> None:
    rows = [(f"{'n' * 60}{end}", [Segment("", 1, "accent", "1")]) for end in "ab"]
    axis = draw_stacked_bars(rows, alt="", unit="")["layout"]["yaxis"]
    assert axis["ticktext"][0] == axis["ticktext"][1]
    assert axis["tickvals"] == [0, 1]


def test_an_interval_is_drawn_from_its_bounds() -> None:
    error = draw_intervals([Dot("v", 0.9, 0.8, 0.95)], alt="", unit="")["traces"][0]["error_x"]
    assert [round(error[side][0], 9) for side in ("arrayminus", "array")] == [0.1, 0.05]
