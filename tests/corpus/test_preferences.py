"""Preferences between two datasets: which queries and codes are drawn, and how choices are counted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from agent.corpus.preferences import Outcome, count_preferences, draw_comparisons
from agent.datasets.encoding import dumps
from agent.errors import InputError
from agent.types import Pair

Rows = list[Mapping[str, Any]]


def draw(folder: Path, a: Rows, b: Rows, n: int = 1000, seed: int = 0) -> tuple[list[Pair], int]:
    """Draw comparisons, and return each in the order of the codes AB, and the number of queries."""
    for name, rows in (("a", a), ("b", b)):
        (folder / f"{name}.jsonl").write_bytes(b"".join(dumps({"label": 1, **row}) + b"\n" for row in rows))
    comparisons, queries = draw_comparisons(folder / "a.jsonl", folder / "b.jsonl", n, seed)
    for one, other in comparisons:
        assert (one.query, one.code, one.context) == (other.query, other.context, other.code)
        assert sorted((one.id[-2:], other.id[-2:])) == ["ab", "ba"]
    return [pair for orders in comparisons for pair in orders if pair.id.endswith("ab")], queries


def list_codes(drawn: tuple[list[Pair], int]) -> list[tuple[str, str | None, str]]:
    return sorted((pair.query, pair.context, pair.code) for pair in drawn[0])


def row(query: str, code: str, **fields: Any) -> dict[str, Any]:
    return {"query": query, "code": code, **fields}


def test_only_queries_with_matches_in_both_datasets_are_drawn(tmp_path: Path) -> None:
    a = [row("q", "a"), row("no", "a", label=0), row("none", "a", label=None), row("only a", "a"), row("b no", "a")]
    b = [row("q", "b"), row("no", "b"), row("none", "b"), row("only b", "b"), row("b no", "b", label=0)]
    drawn = draw(tmp_path, a, b)
    assert (drawn[1], list_codes(drawn)) == (1, [("q", "a", "b")])


def test_queries_match_in_any_case_and_spacing_but_only_within_a_language(tmp_path: Path) -> None:
    a = [row("Sort  a LIST", "a", language="py"), row("other", "a", language="sql")]
    drawn = draw(tmp_path, a, [row("sort a list ", "b"), row("other", "b", language="go")])
    assert list_codes(drawn) == [("Sort  a LIST", "a", "b")]


def test_codes_of_a_comparison_differ_in_more_than_white_space_at_the_end_of_lines(tmp_path: Path) -> None:
    a = [row("same", "f()\ng()"), row("half", "shared"), row("half", "only a"), row("indented", "if x:\n  f()\ng()")]
    b = [row("same", "f()  \r\ng()\n\n"), row("half", "shared "), row("indented", "if x:\n  f()\n  g()")]
    indented = "indented", "if x:\n  f()\ng()", "if x:\n  f()\n  g()"
    for seed in range(9):
        assert list_codes(draw(tmp_path, a, b, seed=seed)) == [("half", "only a", "shared "), indented]


def test_every_match_of_a_query_can_be_drawn(tmp_path: Path) -> None:
    a, b = [row("q", "1"), row("q", "2")], [row("q", "2"), row("q", "3")]
    drawn = {codes for seed in range(60) for codes in list_codes(draw(tmp_path, a, b, seed=seed))}
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
    outcomes: list[Outcome] = [*["a"] * a, *["b"] * b, "tie", "turned", "error"]  # type: ignore[list-item]
    counted = count_preferences("m", outcomes, total=900)
    assert [counted[name] for name in ("prefer_a", "prefer_b", "ties", "turned", "errors")] == [a, b, 2, 1, 1]
    assert counted["pending"] == 900 - a - b - 3
    if a + b:
        test = binomtest(b, a + b, 0.5)
        interval = test.proportion_ci(method="wilson")
        assert (counted["share"], counted["p_value"]) == (b / (a + b), pytest.approx(test.pvalue, rel=1e-9))
        assert counted["interval"] == pytest.approx({"low": interval.low, "high": interval.high})
    else:
        assert (counted["share"], counted["interval"], counted["p_value"]) == (None, None, None)
