import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.retrieval.searchers.lexical import tokenise


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("readFile", ["read", "file", "readfile"]),
        ("parseHTTPResponse", ["parse", "http", "response", "parsehttpresponse"]),
        ("__init__", ["init"]),
        ("utf8", ["utf", "8", "utf8"]),
        ("x.split_lines(2)", ["x", "split", "lines", "split_lines", "2"]),
        ("Größe_in_µm", ["größe", "in", "µm", "größe_in_µm"]),
        ("How to sort a list?", ["how", "to", "sort", "a", "list"]),
        ("... [], -= !", []),
    ],
)
def test_identifiers_yield_their_parts_and_themselves(text, words):
    assert tokenise(text) == words


@given(st.text())
def test_words_of_any_text_are_in_lower_case(text):
    words = tokenise(text)

    assert all(words)
    assert [word.lower() for word in words] == words
    assert tokenise(f"{text} -- {text}") == words * 2
