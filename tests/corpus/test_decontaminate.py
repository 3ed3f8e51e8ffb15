"""Overlap of pairs with benchmarks: what matches, what is reported, and counts, compared with brute force."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.corpus.decontaminate import Decontaminator, remove_overlap
from agent.corpus.near_duplicates import shingle_code
from agent.corpus.output import open_output
from agent.datasets.benchmark import Benchmark
from agent.datasets.reading import read_pairs
from agent.retrieval.benchmark import open_benchmark
from agent.types import Origin, Pair
from tests.corpus.test_near_duplicates import compute_jaccard

LINES = [f"    value_{number} = compute({number})" for number in range(20)]
LONG = "\n".join(["def f(compute):", *LINES, "    return value_19"])


def make_benchmark(queries: Sequence[str] = ("q",), codes: Sequence[str] = ("c",), **answers: str) -> Benchmark:
    """Return a benchmark with the queries q0, q1, … and the codes c0, c1, …"""
    named = ({f"{kind}{i}": text for i, text in enumerate(texts)} for kind, texts in (("q", queries), ("c", codes)))
    return Benchmark("name", *named, grades={}, answers=answers)


def make_finder(**benchmarks: Benchmark) -> Decontaminator:
    finder = Decontaminator()
    for name, benchmark in benchmarks.items():
        finder.add(name, benchmark, lambda *_: None)
    return finder


def check(benchmark: Benchmark, query: str = "-", code: str = "-") -> tuple[str, str] | None:
    """Return the reason to remove a pair and the id of what it matches."""
    removal = make_finder(b=benchmark).check(Pair(id="p", query=query, code=code))
    return (removal["removed_by"], removal["matched_id"]) if removal else None


@pytest.mark.parametrize("query", ["sort a list", "to  Sort, a\tLIST?!", "sort_a-list now", "sort sort a sort a list"])
def test_a_query_that_contains_a_whole_query_is_removed(query: str) -> None:
    assert check(make_benchmark(["join two long texts", "Sort a list."]), query) == ("query", "q1")


@pytest.mark.parametrize("query", ["sort a lists", "resort a list", "sort the list a", "sort a", "a list sort a"])
def test_a_query_that_contains_parts_of_words_or_of_the_query_is_kept(query: str) -> None:
    assert check(make_benchmark(["join two long texts", "Sort a list."]), query) is None


def test_queries_of_fewer_than_three_words_match_nothing() -> None:
    finder = make_finder(b=make_benchmark(["sort list", "sort", "!", "sort list now"]))
    assert not finder.check(Pair(id="p", query="sort list", code="-"))
    assert finder.overlaps["b"]["short_queries"] == 3


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def f(x):\n    return x", ("code", "c1")),
        ("\n\ndef f(x): \r\n    return x\t\r\n", ("code", "c1")),
        ("def f(x):\n  return x", ("near-duplicate code", "c1")),  # equal tokens
        ("def f(y):\n    return y", None),
        (LONG.replace("19", "20"), ("near-duplicate code", "c0")),
        (re.sub("value", "x", LONG), None),
        ("answer()", ("code", "q0")),
    ],
)
def test_equal_code_and_near_duplicates_are_removed(code: str, expected: tuple[str, str] | None) -> None:
    assert check(make_benchmark(codes=[LONG, "def f(x):\n    return x\n"], q0="answer()"), code=code) == expected


def test_the_first_reason_and_its_text_are_reported_and_all_benchmarks_are_counted() -> None:
    codes = [LONG, LONG.replace("19", "20")]
    one, two = make_benchmark(["x y z w"], ["c", codes[1]]), make_benchmark(["b c d", "a b c"], codes)
    finder = make_finder(one=one, two=two, three=make_benchmark(["other words here"]))
    pairs = (("a b c d", LONG), ("-", LONG), ("-", LONG.replace("19", "21")), ("z", "z"))
    assert [finder.check(Pair(id=query, query=query, code=code)) for query, code in pairs] == [
        {"removed_by": "query", "benchmark": "two", "matched_id": "q1", "matched_query": "a b c"},
        {"removed_by": "code", "benchmark": "two", "matched_id": "c0", "matched_code": LONG},
        {"removed_by": "near-duplicate code", "benchmark": "one", "matched_id": "c1", "matched_code": codes[1]},
        {},
    ]
    assert {name: tuple(counts.values()) for name, counts in finder.overlaps.items()} == {
        "one": (1, 2, 0, 0, 1, 3), "two": (2, 2, 0, 2, 2, 3), "three": (1, 1, 0, 0, 0, 0),
    }  # fmt: skip


def apply(folder: Path, finder: Decontaminator, pairs: Sequence[Pair]) -> tuple[list[Any], list[Any]]:
    """Return the kept and the removed records."""
    with open_output(folder / "c.jsonl") as writer:
        remove_overlap(pairs, finder, writer, lambda *_: None)
    kept, removed = (folder / name for name in ("c.jsonl", "c.removed.jsonl"))
    return [json.loads(line) for line in kept.open("rb")], [json.loads(line) for line in removed.open("rb")]


@pytest.mark.parametrize("context", [None, "context"])
def test_all_fields_of_a_pair_are_kept(tmp_path: Path, context: str | None) -> None:
    meta = {"label": 1, "doc": "z", "null": None, "nested": {"id": 3}, "context": "x", "meta": "y", "removed_by": "me"}
    origin = None if context is None else Origin(repository="r", commit="c", name="f", class_name="A", lines=(1, 2))
    meta |= {"origin": "here"}
    pair = Pair(id="p", query="a b c \ud800", code="x", language="go", context=context, origin=origin, meta=meta)
    kept, _ = apply(tmp_path, make_finder(b=make_benchmark()), [pair])
    assert list(read_pairs(tmp_path / "c.jsonl")) == [pair]
    nested = {"context": "x", "meta": "y"} | ({} if origin is None else {"origin": "here"})
    assert (kept[0]["label"], kept[0]["meta"]) == (1, nested)
    _, removed = apply(tmp_path, make_finder(b=make_benchmark(["a b c"])), [pair])
    match = {"removed_by": "query", "benchmark": "b", "matched_id": "q0", "matched_query": "a b c"}
    assert removed == [{**kept[0], **match}]


TEXTS = st.lists(st.sampled_from(["a", "b", "A,", "b.", "c"]), min_size=1, max_size=6).map(" ".join)
CODES = st.tuples(st.sampled_from(range(19)), st.sampled_from("0189"), st.sampled_from(["\n", " \n", "\n\n"])).map(
    lambda change: change[2].join([*LINES[: change[0]], f"    x = {change[1]}", *LINES[change[0] :]])
)
ITEMS = st.lists(st.tuples(TEXTS, CODES), min_size=1, max_size=6)


def contains(query: str, other: str) -> bool:
    words, others = (f" {re.sub('[^a-z]+', ' ', text.lower()).strip()} " for text in (query, other))
    return others in words and len(others.split()) >= 3


def compare(code: str, other: str) -> float:
    """Return 2 for equal codes, or else their similarity."""
    lines, others = ([line.rstrip() for line in text.strip().split("\n")] for text in (code, other))
    return 2 if lines == others else compute_jaccard(shingle_code(code), shingle_code(other))


@settings(max_examples=60, deadline=None)
@given(ITEMS, ITEMS)
def test_removed_pairs_are_those_that_brute_force_finds(ours: list[Any], theirs: list[Any]) -> None:
    benchmark = make_benchmark(*zip(*theirs, strict=True))
    finder = make_finder(b=benchmark)
    pairs = [Pair(id=str(number), query=query, code=code) for number, (query, code) in enumerate(ours)]
    with TemporaryDirectory() as folder:
        kept, removed = apply(Path(folder), finder, pairs)
    assert sorted(row["id"] for row in kept + removed) == [pair.id for pair in pairs]
    reasons, matched = {row["id"]: row["removed_by"] for row in removed}, set[str]()
    for pair in pairs:
        queries = {name for name, query in benchmark.queries.items() if contains(pair.query, query)}
        similarity = max(compare(pair.code, code) for code in benchmark.codes.values())
        matched |= queries
        if queries or similarity == 2:
            assert reasons[pair.id] == ("query" if queries else "code")
        elif pair.id in reasons:
            assert similarity >= 0.8
        else:
            assert similarity < 0.95  # the index misses few sets above .8, and next to none above .9
    assert finder.overlaps["b"]["contaminated_queries"] == len(matched)
    assert finder.overlaps["b"]["matching_pairs"] == len(removed)


@pytest.mark.real_data
def test_cosqas_code_base_contains_the_codes_of_its_dev_set(tmp_path: Path, real_data: Path) -> None:
    codes = real_data / "cosqa_search_codes_6267.jsonl"
    finder = make_finder(b=open_benchmark(real_data / "cosqa_search_dev_500.jsonl", [codes]))
    _, removed = apply(tmp_path, finder, read_pairs(real_data / "cosqa_dev.jsonl"))
    assert [row["removed_by"] for row in removed].count("query") == 6
    assert list(finder.overlaps["b"].values()) == [500, 6267, 0, 6, 264, 277]
