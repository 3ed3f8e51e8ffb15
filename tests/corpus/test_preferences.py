"""Preferences between two datasets: which queries and codes are drawn, and how choices are counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import binomtest

from agent.corpus.preferences import Outcome, count_preferences, draw_comparisons
from agent.errors import InputError
from tests.evaluation.runs import write_lines

Rows = list[dict[str, Any]]


def draw(folder: Path, a: Rows, b: Rows, seed: int = 0) -> tuple[list[tuple[str, str, str]], int]:
    """Draw comparisons, and return the query, the code of A and the code of B of each, and the number of queries."""
    paths = write_lines(folder / "a.jsonl", a), write_lines(folder / "b.jsonl", b)
    drawn, queries = draw_comparisons(*paths, 1000, seed)
    for one, other in drawn:
        assert (one.query, one.code, one.first) == (other.query, other.first, other.code)
        assert sorted((one.id[-2:], other.id[-2:])) == ["ab", "ba"]
    ordered = [comparison for orders in drawn for comparison in orders if comparison.id.endswith("ab")]
    return sorted((comparison.query, comparison.first, comparison.code) for comparison in ordered), queries


def row(query: str, code: str, **fields: Any) -> dict[str, Any]:
    return {"query": query, "code": code, "label": 1, **fields}


def test_only_queries_with_matches_in_both_datasets_are_drawn_whatever_their_case_and_spacing(tmp_path: Path) -> None:
    a = [row("q", "a"), row("no", "a", label=0), row("none", "a", label=None), row("only a", "a"), row("b no", "a")]
    b = [row("q", "b"), row("no", "b"), row("none", "b"), row("only b", "b"), row("b no", "b", label=0)]
    a += [row("Sort  a LIST", "a", language="py"), row("other", "a", language="sql")]
    b += [row("sort a list ", "b"), row("other", "b", language="go")]
    assert draw(tmp_path, a, b) == ([("Sort  a LIST", "a", "b"), ("q", "a", "b")], 2)


def test_codes_of_a_comparison_differ_in_more_than_white_space_at_the_end_of_lines(tmp_path: Path) -> None:
    a = [row("same", "f()\ng()"), row("half", "shared"), row("half", "only a"), row("indented", "if x:\n  f()\ng()")]
    b = [row("same", "f()  \r\ng()\n\n"), row("half", "shared "), row("indented", "if x:\n  f()\n  g()")]
    indented = "indented", "if x:\n  f()\ng()", "if x:\n  f()\n  g()"
    for seed in range(9):
        assert draw(tmp_path, a, b, seed)[0] == [("half", "only a", "shared "), indented]


def test_every_match_of_a_query_can_be_drawn(tmp_path: Path) -> None:
    a, b = [row("q", "1"), row("q", "2")], [row("q", "2"), row("q", "3")]
    drawn = {codes for seed in range(60) for codes in draw(tmp_path, a, b, seed)[0]}
    assert drawn == {("q", "1", "2"), ("q", "1", "3"), ("q", "2", "3")}


def test_a_seed_determines_the_queries_and_the_order_that_is_shown(tmp_path: Path) -> None:
    a, b = ([row(f"q{n}", f"{side}{n}") for n in range(40)] for side in "ab")
    assert draw(tmp_path, a, b)[1] == 40
    files = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first, again, other = (draw_comparisons(*files, 20, seed)[0] for seed in (0, 0, 1))
    assert (first, len(first)) == (again, 20)
    assert {pair.query for pair, _ in first} != {pair.query for pair, _ in other}
    assert {pair.id[-2:] for pair, _ in first} == {"ab", "ba"}


@pytest.mark.parametrize(("changes", "name"), [({"query": "r"}, "a"), ({"label": 0}, "b"), ({"context": "x"}, "b")])
def test_no_common_query_no_match_and_a_context_are_errors(tmp_path: Path, changes: dict[str, Any], name: str) -> None:
    with pytest.raises(InputError) as raised:
        draw(tmp_path, [row("q", "a")], [{**row("q", "b"), **changes}])
    assert raised.value.path == str(tmp_path / f"{name}.jsonl")


@given(st.integers(0, 400), st.integers(0, 400))
def test_shares_and_p_values_match_scipy_and_ignore_ties(a: int, b: int) -> None:
    assume(a + b)
    outcomes: list[Outcome] = [*["a"] * a, *["b"] * b, "tie", "position_dependent", "error"]  # type: ignore[list-item]
    counted = count_preferences("m", outcomes, total=900)
    assert (counted.prefer_a, counted.prefer_b, counted.ties, counted.errors) == (a, b, 2, 1)
    assert counted.position_dependent == 1
    assert counted.pending == 900 - a - b - 3
    test = binomtest(b, a + b, 0.5)
    interval = test.proportion_ci(method="wilson")
    assert (counted.share, counted.p_value) == (b / (a + b), pytest.approx(test.pvalue, rel=1e-9))
    assert counted.interval is not None
    assert (counted.interval.low, counted.interval.high) == pytest.approx((interval.low, interval.high))
