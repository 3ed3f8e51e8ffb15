from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.llm.heuristic.words import MAX_WORD, near, query_terms, split_identifier, stem, term


@pytest.mark.parametrize(
    ("one", "other"), [("removing", "removes"), ("stripped", "strip"), ("queries", "query"), ("indices", "index")]
)
def test_inflections_of_a_word_share_a_term(one: str, other: str) -> None:
    assert term(one) == term(other)


@pytest.mark.parametrize("word", ["string", "docstring", "class", "status", "this"])
def test_endings_that_belong_to_the_word_stay(word: str) -> None:
    assert stem(word) == word


@pytest.mark.parametrize(("one", "other"), [("delete", "remove"), ("dir", "folder"), ("str", "text"), ("dict", "map")])
def test_synonyms_share_a_term(one: str, other: str) -> None:
    assert term(one) == term(other)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("getHTTPResponse", ["get", "http", "response"]),
        ("str2bool", ["str", "2", "bool"]),
        ("__private_name", ["private", "name"]),
        ("is_empty", ["check", "empty"]),
        ("is", ["is"]),
    ],
)
def test_identifiers_fall_into_words(name: str, words: list[str]) -> None:
    assert split_identifier(name) == words


def test_a_query_keeps_only_the_words_that_tell() -> None:
    assert query_terms("how to delete a directory in python") == ["remove", "folder"]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("lenght", "length", True),
        ("eucliden", "euclidean", True),
        ("matrx", "matrix", True),
        ("table", "cable", True),
        ("cat", "cut", False),
        ("string", "strong-", False),
    ],
)
def test_one_wrong_letter_is_forgiven_in_words_of_five_letters(one: str, other: str, expected: bool) -> None:
    assert near(one, other) is expected
    assert near(other, one) is expected


@given(st.text())
def test_any_text_has_terms_of_bounded_length(text: str) -> None:
    assert all(len(each) <= MAX_WORD + 1 for each in query_terms(text))
