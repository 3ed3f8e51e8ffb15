"""Leaks of held-out queries and their relevant codes, compared with brute force."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.corpus.near_duplicates import shingle_code, shingle_text
from agent.datasets.benchmark import Benchmark
from agent.training.data import TrainingData, read_training_data
from agent.training.leaks import find_leaks

DOCUMENTED = 'def add(a, b):\n    """Return the sum of two numbers, which may be of any type."""\n    return a + b'
NONE = {"queries": 0, "near_queries": 0, "codes": 0, "near_codes": 0}


def ignore(*_: object) -> None:
    """Ignore progress."""


def make_data(queries: Sequence[str], codes: Sequence[str], *tests: Benchmark) -> TrainingData:
    """Return training data. Its pairs do not matter for leaks. The first test also serves as validation."""
    groups = [0] * len(queries), [0] * len(codes)
    return TrainingData("data", queries, codes, [], ["python"] * len(codes), *groups, tests[0], tests[1:])


def make_benchmark(queries: Sequence[str], *codes: str, name: str = "test", **fields: str) -> Benchmark:
    """Return a benchmark in which all codes are relevant for the first query."""
    ids = [f"c{number}" for number in range(len(codes))]
    texts = {f"q{number}": query for number, query in enumerate(queries)}
    return Benchmark(name, texts, dict(zip(ids, codes, strict=True)), {"q0": dict.fromkeys(ids, 1)}, **fields)


def count_leaks(data: TrainingData) -> Mapping[str, int]:
    return find_leaks(data, ignore).counts["test"]


def test_equal_and_nearly_equal_queries_leak() -> None:
    benchmark = make_benchmark(["sort a list of numbers", "reverse a string in python", "read a file"])
    data = make_data(["sort a list of numbers", "Reverse  a string in Python 3"], ["x"], benchmark)
    assert count_leaks(data) == {**NONE, "queries": 1, "near_queries": 1}


def test_only_relevant_codes_and_answers_leak() -> None:
    codes = {"a": "one()", "b": "two()", "c": "three()", "d": "def f(a, b, c): return a + b + c + 1"}
    grades = {"q": {"b": 2, "c": 0, "d": 1}}
    benchmark = Benchmark("test", {"q": "x"}, codes, grades, answers={"q": "answer()"})
    near = "def f(a, b, c):  return a + b + c + 1"
    counts = count_leaks(make_data(["q"], ["one()", "two()", "three()", "answer()", near], benchmark))
    assert counts == {**NONE, "codes": 2, "near_codes": 1}
    assert not find_leaks(make_data(["q"], ["one()", "three()"], benchmark), ignore)


def test_python_code_also_leaks_without_its_docstrings(tmp_path: Path) -> None:
    (tmp_path / "codes.jsonl").write_text(json.dumps({"code": DOCUMENTED}))
    (tmp_path / "test.jsonl").write_text(json.dumps({"query": "add", "code": DOCUMENTED, "label": 1}))
    options = {"pairs": "docstrings", "tests": [tmp_path / "test.jsonl"], "progress": ignore}
    data = read_training_data(tmp_path / "codes.jsonl", **options)
    assert count_leaks(data) == {**NONE, "codes": 1}
    assert not find_leaks(make_data(["q"], data.codes, make_benchmark(["x"], DOCUMENTED, language="java")), ignore)


def test_leaks_are_counted_by_benchmark() -> None:
    validation, other = make_benchmark(["sort", "join"], name="validation"), make_benchmark(["read"], name="other")
    leaks = find_leaks(make_data(["sort", "join"], ["x"], validation, other, make_benchmark(["sort"])), ignore)
    assert {name: counts["queries"] for name, counts in leaks.counts.items()} == {
        "validation": 2,
        "other": 0,
        "test": 1,
    }
    assert leaks
    assert "other" not in leaks.describe()


def test_the_threshold_itself_is_a_near_duplicate() -> None:
    tokens = [f"t{number}" for number in range(13)]  # 9 shingles of 5 tokens
    for shared, leaks in ((8, 1), (7, 0)):  # of 10 and 11 distinct shingles
        other = [*tokens[: shared + 4], *(f"u{number}" for number in range(9 - shared))]
        data = make_data(["q"], [" ".join(other)], make_benchmark(["x"], " ".join(tokens)))
        assert count_leaks(data)["near_codes"] == leaks


def count_by_brute_force(
    training: Sequence[str], held_out: Sequence[str], shingle: Callable[[str], frozenset[str]]
) -> tuple[int, int]:
    """Return the number of held-out texts that equal a training text, and of others that are nearly equal to one."""
    sets = [shingle(text) for text in training]
    near = [any(len(own & shingle(text)) / len(own | shingle(text)) >= 0.8 for own in sets) for text in held_out]
    equal = len(set(training) & set(held_out))
    return equal, sum(near) - equal


@st.composite
def similar_texts(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Two lists of distinct texts that differ from a few long texts by a few words."""
    words = st.sampled_from(["sort", "list", "Sort", "a", "of", "x", "file", "(", "read", "b"])
    bases = draw(st.lists(st.lists(words, min_size=1, max_size=60), min_size=1, max_size=3))

    def change(base: list[str]) -> st.SearchStrategy[str]:
        edits = st.dictionaries(st.integers(0, len(base) - 1), words, max_size=3)
        return edits.map(lambda made: " ".join(made.get(place, word) for place, word in enumerate(base)))

    texts = st.lists(st.sampled_from(bases).flatmap(change), min_size=1, max_size=8, unique=True)
    return draw(texts), draw(texts)


@given(similar_texts(), similar_texts())
def test_exactly_the_leaks_that_brute_force_finds_are_counted(
    queries: tuple[list[str], list[str]], codes: tuple[list[str], list[str]]
) -> None:
    data = make_data(queries[0], codes[0], make_benchmark(queries[1], *codes[1], language="java"))
    expected = (
        *count_by_brute_force(*queries, lambda query: shingle_text(" ".join(query.lower().split()))),
        *count_by_brute_force(*codes, shingle_code),
    )
    assert tuple(count_leaks(data).values()) == expected


@pytest.mark.real_data
def test_docstring_pairs_of_a_searched_corpus_contain_the_relevant_codes(real_data: Path) -> None:
    codes, queries = real_data / "cosqa_search_codes_6267.jsonl", real_data / "cosqa_search_dev_500.jsonl"
    data = read_training_data(codes, pairs="docstrings", codes=[str(codes)], tests=[queries], progress=ignore)
    (counts,) = find_leaks(data, ignore).counts.values()
    assert 450 < counts["codes"] <= 478
