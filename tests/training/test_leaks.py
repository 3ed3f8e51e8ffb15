"""Leaks of held-out queries and their relevant codes, compared with brute force."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.corpus.near_duplicates import cluster, shingle_code, shingle_query
from agent.datasets.benchmark import Benchmark
from agent.training.data import TrainingData, read_training_data
from agent.training.leaks import find_leaks
from tests.training.tiny import make_contrasts

DOCUMENTED = 'def add(a, b):\n    """Return the sum of two numbers, which may be of any type."""\n    return a + b'
Texts = tuple[list[str], list[str]]
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


def test_only_relevant_codes_and_answers_leak() -> None:
    codes = {"a": "one()", "b": "two()", "c": "three()", "d": "def f(a, b, c): return a + b + c + 1"}
    grades = {"q": {"b": 2, "c": 0, "d": 1}}
    benchmark = Benchmark("test", {"q": "x"}, codes, grades, answers={"q": "answer()"})
    near = "def f(a, b, c):  return a + b + c + 1"
    counts = count_leaks(make_data(["q"], ["one()", "two()", "three()", "answer()", near], benchmark))
    assert counts == {**NONE, "codes": 2, "near_codes": 1}
    found = find_leaks(make_data(["q"], ["two()", near], benchmark), ignore).found
    assert found == (("test", "codes", "b", "two()"), ("test", "near_codes", "d", near))
    assert not find_leaks(make_data(["q"], ["one()", "three()"], benchmark), ignore)


def test_python_code_also_leaks_without_its_docstrings(tmp_path: Path) -> None:
    (tmp_path / "codes.jsonl").write_text(json.dumps({"code": DOCUMENTED}))
    (tmp_path / "test.jsonl").write_text(json.dumps({"query": "add", "code": DOCUMENTED, "label": 1}))
    options = {"pairs": "docstrings", "tests": [tmp_path / "test.jsonl"], "progress": ignore}
    data = read_training_data(tmp_path / "codes.jsonl", **options)
    assert count_leaks(data) == {**NONE, "codes": 1}
    assert not find_leaks(make_data(["q"], data.codes, make_benchmark(["x"], DOCUMENTED, language="java")), ignore)


@pytest.mark.parametrize(("field", "kind"), [("query", "queries"), ("right", "codes"), ("wrong", "codes")])
def test_contrasts_leak_like_pairs(field: str, kind: str) -> None:
    contrasts = make_contrasts()
    (row, *others) = contrasts.rows
    benchmark = make_benchmark(["held out"], "held()")
    leaking = replace(row, **{field: "held out" if field == "query" else "held()"})
    data = replace(make_data(["q"], ["x"], benchmark), contrasts=replace(contrasts, rows=[leaking, *others]))
    assert count_leaks(data) == {**NONE, kind: 1}


def test_leaks_are_counted_by_benchmark() -> None:
    validation, other = make_benchmark(["sort", "join"], name="validation"), make_benchmark(["read"], name="other")
    leaks = find_leaks(make_data(["sort", "join"], ["x"], validation, other, make_benchmark(["sort"])), ignore)
    assert {name: leak["queries"] for name, leak in leaks.counts.items()} == {"validation": 2, "other": 0, "test": 1}
    assert leaks
    assert "other" not in leaks.describe()


@pytest.mark.parametrize("size", range(1, 16))
def test_codes_leak_from_a_similarity_of_four_fifths_up(size: int) -> None:
    tokens = [f"t{number}" for number in range(size + 4)]  # `size` runs of 5 tokens
    shared = [(count, more) for count in range(1, size + 1) for more in range(5) if (count, more) != (size, 0)]
    codes = [" ".join([*tokens[: count + 4], *"uvwxy"[:more]]) for count, more in shared]
    counts = count_leaks(make_data(["q"], [" ".join(tokens)], make_benchmark(["x"], *codes)))
    assert counts["near_codes"] == sum(count / (size + more) >= 0.8 for count, more in shared)


@st.composite
def similar_texts(draw: st.DrawFn) -> Texts:
    """Two lists of distinct texts that differ from a few texts by their ends and by a few words."""
    words = st.sampled_from(["sort", "list", "Sort", "a", "of", "x", "file", "(", "read", "b"])
    base = draw(st.lists(words, min_size=1, max_size=12) | st.lists(words, min_size=20, max_size=60))
    edits = st.dictionaries(st.integers(0, len(base) - 1), words, max_size=3)
    ends = st.integers(0, 5).map(lambda cut: max(1, len(base) - cut))
    text = st.builds(lambda made, end: " ".join({**dict(enumerate(base[:end])), **made}.values()), edits, ends)
    texts = st.lists(text, min_size=1, max_size=8, unique=True)
    return draw(texts), draw(texts)


@given(similar_texts(), st.sampled_from(["queries", "codes"]))
def test_leaks_are_near_duplicates_and_never_connect_two_clusters(texts: Texts, kind: str) -> None:
    train, held_out = texts
    shingle = shingle_query if kind == "queries" else shingle_code
    names = cluster([*train, *held_out], len(train) + len(held_out), ignore, shingle)
    for own, name in zip(held_out, names[len(train) :], strict=True):
        similarities = [len(shingle(own) & shingle(text)) / len(shingle(own) | shingle(text)) for text in train]
        counts = count_leaks(
            make_data(train, ["x"], make_benchmark([own], "y"))
            if kind == "queries"
            else make_data(["x"], train, make_benchmark(["y"], own, language="java"))
        )
        assert counts[kind] == (own in train)
        assert counts[f"near_{kind}"] <= (max(similarities) >= 0.8 and name in names[: len(train)])
        assert counts[f"near_{kind}"] or own in train or max(similarities) < 0.95


@pytest.mark.real_data
def test_docstring_pairs_of_a_searched_corpus_contain_the_relevant_codes(real_data: Path) -> None:
    codes, queries = real_data / "cosqa_search_codes_6267.jsonl", real_data / "cosqa_search_dev_500.jsonl"
    data = read_training_data(codes, pairs="docstrings", codes=[str(codes)], tests=[queries], progress=ignore)
    (counts,) = find_leaks(data, ignore).counts.values()
    assert 450 < counts["codes"] <= 478
