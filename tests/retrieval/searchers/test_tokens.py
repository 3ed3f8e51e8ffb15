import pytest

from agent.retrieval.searchers.tokens import tokens


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
def test_identifiers_are_split_and_kept_whole(text, words):
    assert tokens(text) == words
