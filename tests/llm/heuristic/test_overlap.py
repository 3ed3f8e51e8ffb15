from __future__ import annotations

from agent.llm.heuristic.overlap import measure
from agent.llm.heuristic.snippets import outline


def score(query: str, code: str) -> float:
    return measure(query, outline(code)).score


def test_a_name_that_says_the_query_scores_full() -> None:
    assert score("how to flatten a list in python", "def flatten_list(lst): pass") == 1.0


def test_code_about_something_else_scores_nothing() -> None:
    overlap = measure("open serial port", outline("def area(radius): return 3.14 * radius ** 2"))
    assert overlap.score == 0.0
    assert overlap.missing == ("open", "serial", "port")


def test_a_name_tells_more_than_a_docstring_and_that_more_than_the_body() -> None:
    query = "transpose matrix"
    by_name = score(query, "def transpose_matrix(m): pass")
    by_doc = score(query, 'def f(m):\n    """Transpose a matrix."""')
    by_body = score(query, "def f(m): return m.transpose(matrix)")
    assert by_name > by_doc > by_body > 0


def test_words_beside_the_query_in_the_name_lower_the_score() -> None:
    query = "read json file"
    assert score(query, "def read_json_file(p): pass") > score(query, "def read_json_file_schema_cache(p): pass")


def test_a_misspelt_query_still_finds_its_word() -> None:
    assert score("eucliden distance", "def euclidean_distance(a, b): pass") > 0.8


def test_python_2_code_is_read_by_pattern() -> None:
    assert score("open serial port", "def open_serial_port(port):\n    print 'opening'") == 1.0


def test_a_query_of_stop_words_alone_overlaps_with_nothing() -> None:
    assert score("how to do this in python", "def do_this(): pass") == 0.0
