"""The judge of Neural Code Search: features of code, similarity, and grades."""

from __future__ import annotations

import ast
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.datasets.benchmark import Benchmark
from agent.languages.python.source import Unparsable
from agent.retrieval.aroma import THRESHOLD, AromaJudge, Features, compute_similarity, extract_features

READ = "def read_lines(path):\n    with open(path) as file:\n        return file.read().splitlines()\n"
RENAMED = "def lines_of(name):\n    'Return them.'\n    with open(name) as f:\n        return f.read().splitlines()\n"
SORT = "def order(values):\n    values = list(values)\n    values.sort(key=len, reverse=True)\n    return values[:10]\n"
ADD = "def add(x, y):\n    return x + y\n"
PYTHON2 = "def show(x):\n    print x\n"
CODES = (
    READ,
    RENAMED,
    SORT,
    ADD,
    "x = [y.strip() for y in open('a') if y]",
    "import os\nos.remove('a')",
    "f'{a!r} {b}'",
)


def extract_python(code: str) -> Features:
    return extract_features(code, "python")


def test_features_of_a_small_function_equal_those_derived_by_hand() -> None:
    """In `x.strip(); y(x)`, x is a parameter and therefore a variable, y and strip are not."""
    features = extract_python("def f(x):\n    x.strip()\n    y(x)\n")
    attribute, call, one = "Attribute value attr", "Call func", "Call func args"
    assert features == Counter(
        {
            ("token", "#VAR"): 2,
            ("token", "strip"): 1,
            ("token", "y"): 1,
            ("parent", "#VAR", 0, attribute): 1,
            ("parent", "strip", 1, attribute): 1,
            ("sibling", "#VAR", "strip"): 2,
            ("sibling", "strip", "y"): 2,
            ("parent", "y", 0, one): 1,
            ("parent", "#VAR", 1, one): 1,
            ("sibling", "y", "#VAR"): 2,
            ("use", "strip", f"1 {one}"): 2,
            ("parent", "#VAR", 0, call): 1,
            ("parent", "strip", 0, call): 1,
        }
    )


def test_names_of_variables_and_function_and_docstrings_are_ignored() -> None:
    assert compute_similarity(extract_python(READ), extract_python(RENAMED)) == 1.0


@given(st.sampled_from(CODES), st.sampled_from(CODES))
def test_similarity_is_symmetric_and_equals_multiset_jaccard(one: str, other: str) -> None:
    a, b = extract_python(one), extract_python(other)
    assert compute_similarity(a, b) == compute_similarity(b, a) == (a & b).total() / (a | b).total()
    assert compute_similarity(a, a) == 1.0


@given(st.sampled_from(CODES), st.sampled_from(["z9", "q_", "été"]))
def test_renaming_variables_does_not_change_features(code: str, suffix: str) -> None:
    local = {"path", "file", "name", "f", "values", "x", "y"}

    class Rename(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.Name:
            return ast.Name(f"{node.id}{suffix}", node.ctx) if node.id in local else node

        def visit_arg(self, node: ast.arg) -> ast.arg:
            return ast.arg(f"{node.arg}{suffix}")

    assert extract_python(ast.unparse(Rename().visit(ast.parse(code)))) == extract_python(code)


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (PYTHON2, "Python 2 syntax"),
        ("", "no names"),
        ("'only text'", "no names"),
        ("x = 1\0", "null bytes"),
        ("-" * 90_000 + "1", "nested"),
        ("x" * 200_000, "characters"),
    ],
    ids=["python 2", "empty", "a docstring", "nul", "deep", "long"],
)
def test_code_without_features_is_unparsable(code: str, cause: str) -> None:
    with pytest.raises(Unparsable, match=cause):
        extract_python(code)


@given(st.text())
def test_any_text_has_features_or_is_unparsable(text: str) -> None:
    for language in ("python", "java"):
        with suppress(Unparsable):
            assert extract_features(text, language)


def test_other_languages_have_token_features_without_comments() -> None:
    one = extract_features('int add(int x) { // "sum"\n return x + 1; /* it\'s */ }', "java")
    assert one == extract_features("int add(int x) { return x + 1; }", "java")
    assert ("sibling", "return", "x") in one
    assert extract_features("x /* never closed" + " /*" * 100_000, "java") == extract_features("x", "java")


def make_benchmark(**changes: object) -> Benchmark:
    fields = {
        "name": "b",
        "queries": {"q1": "read lines", "q2": "print", "q3": "other"},
        "codes": {"read": READ, "renamed": RENAMED, "sort": SORT, "old": PYTHON2},
        "grades": {"q1": {"read": 1, "sort": 0}, "q2": {"old": 1}},
    }
    return Benchmark(**{**fields, **changes})  # type: ignore[arg-type]


def test_results_similar_to_a_snippet_labelled_relevant_are_relevant() -> None:
    grades, notes = AromaJudge(make_benchmark()).judge({"q1": ["renamed", "sort"]})
    assert grades == {"q1": {"renamed": 1, "sort": 0}}
    assert "2 results" in notes[0]


def test_unparsable_snippets_are_counted_and_not_judged() -> None:
    grades, notes = AromaJudge(make_benchmark()).judge({"q1": ["read", "old"], "q2": ["read"], "q3": ["read"]})
    assert grades == {"q1": {"read": 1}}
    assert "2 queries" in notes[1]
    assert "1 result " in notes[2]


def test_answers_of_the_benchmark_replace_its_labels() -> None:
    grades, notes = AromaJudge(make_benchmark(answers={"q1": SORT})).judge({"q1": ["read", "sort"], "q2": ["read"]})
    assert grades == {"q1": {"read": 0, "sort": 1}}
    assert "answers" in notes[0]


def test_the_most_similar_answer_counts() -> None:
    two_answers = make_benchmark(grades={"q1": {"read": 1, "sort": 1}})
    assert AromaJudge(two_answers).judge({"q1": ["renamed", "sort"]})[0] == {"q1": {"renamed": 1, "sort": 1}}


def test_a_similarity_equal_to_the_threshold_is_relevant() -> None:
    assert compute_similarity(extract_features("a", "java"), extract_features("a b", "java")) == THRESHOLD
    small = make_benchmark(codes={"a": "a b", "c": "a b c"}, answers={"q1": "a"}, language="java")
    grades, notes = AromaJudge(small).judge({"q1": ["a", "c"]})
    assert grades == {"q1": {"a": 1, "c": 0}}
    assert "java" in notes[1]
