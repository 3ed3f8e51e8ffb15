import pytest

from agent.retrieval.searchers.tokens import tokens


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("readFile", ["read", "file", "readfile"]),
        ("parseHTTPResponse", ["parse", "http", "response", "parsehttpresponse"]),
        ("__init__", ["init", "__init__"]),
        ("utf8", ["utf", "8", "utf8"]),
        ("x.split_lines(2)", ["x", "split", "lines", "split_lines", "2"]),
        ("Größe_in_µm", ["größe", "µm", "größe_in_µm"]),
        ("how to reverse a list in python?", ["how", "reverse", "list", "python"]),
        ("the 'is' of (to)", []),
    ],
)
def test_identifiers_are_split_and_kept_whole_without_stop_words(text, words):
    assert tokens(text) == words
