"""Queries are read from all formats, and duplicates and unwanted queries are removed."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.corpus.output import get_removed_path, open_output
from agent.corpus.queries import QueryFilter, count_agreement, find_rule, load_rules, read_queries
from agent.datasets.encoding import loads
from agent.errors import InputError

COSQA = load_rules("cosqa")
WORDS = ["python", "sort", "list", "List", "ide", "side", "of", "dictionary"]


def write(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


def filter_texts(*queries: str, **limits: int) -> list[dict[str, str]]:
    check = QueryFilter(COSQA, **limits).check
    return [check(f"q{number}", query) for number, query in enumerate(queries, start=1)]


def test_queries_keep_their_ids_and_other_fields(tmp_path: Path) -> None:
    lines = write(tmp_path, "a.txt", b"\xef\xbb\xbfsort  a\tlist \r\n\n  \nreverse")
    rows = write(tmp_path, "b.jsonl", b'{"_id": 7, "id": null, "doc": "x", "query": null, "n": [1]}\n{"text": "y"}')
    first, second = {"id": "q1", "query": "sort a list"}, {"id": "q2", "query": "reverse"}
    third, fourth = {"id": "7", "query": "x", "n": [1]}, {"id": "q4", "query": "y"}
    assert list(read_queries([lines, rows])) == [first, second, third, fourth]


def test_a_named_field_is_the_query(tmp_path: Path) -> None:
    table = write(tmp_path, "a.csv", b"title,query,idx\nsort,other,3\n")
    lines = write(tmp_path, "b.txt.gz", gzip.compress(b"reverse\n"))
    rows = list(read_queries([table, lines], "query=title"))
    assert rows == [{"id": "3", "query": "sort"}, {"id": "q2", "query": "reverse"}]


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("a.txt", b"x\n\n\xff\n", 3),
        ("a.jsonl", b'{"id": 1, "query": "x"}\n{"id": "1", "query": "y"}', 2),
        ("a.jsonl", b'{"query": "x"}\n{"id": "q1", "query": "y"}', 2),
        ("a.jsonl", b'{"id": [], "query": "x"}', 1),
    ],
)
def test_a_bad_query_is_located(tmp_path: Path, name: str, content: bytes, line: int) -> None:
    path = write(tmp_path, name, content)
    with pytest.raises(InputError) as caught:
        list(read_queries([path]))
    assert (caught.value.path, caught.value.line) == (str(path), line)


def test_duplicates_name_the_kept_query() -> None:
    same, near = filter_texts("python sort list", "Python Sort LIST", "python sort lists")[1:]
    assert (same["removed_by"], same["duplicate_of"]) == ("duplicate", "q1")
    assert (near["removed_by"], near["duplicate_of"]) == ("near duplicate", "q1")
    assert filter_texts("python int to string", "python string to int") == [{}, {}]
    assert [removal["removed_by"] for removal in filter_texts("python ide x", "python ide x")] == ["ide", "ide"]


def test_length_limits_count_words_and_precede_rules() -> None:
    removed = filter_texts("python ide", "python sort list", "python sort a long list", min_words=3, max_words=4)
    assert [removal.get("removed_by") for removal in removed] == ["min-words", None, "max-words"]


@given(st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)), st.integers(1, 5))
def test_every_query_is_either_kept_or_removed(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], longest: int
) -> None:
    rows = [{"id": str(number), "query": text} for number, text in enumerate(texts)]
    out = tmp_path_factory.getbasetemp() / "queries.jsonl"
    with open_output(out) as writer:
        counts = QueryFilter(COSQA, 1, longest).apply(rows, writer, lambda _name, _done, _total: None)
    kept, removed = ([*map(loads, path.read_bytes().splitlines())] for path in (out, get_removed_path(out)))
    assert sorted(row["id"] for row in kept + removed) == sorted(row["id"] for row in rows)
    assert sum(counts.values(), Counter()) == Counter(row["removed_by"] for row in removed)
    assert {row.get("duplicate_of") for row in removed} <= {None, *(row["id"] for row in kept)}
    assert len({row["query"].lower() for row in kept}) == len(kept)


@pytest.mark.parametrize("content", [b'{"query": "x"}', b'{"query": "x", "label": 2}', b'{"label": 1}', b""])
def test_a_bad_labelled_file_is_rejected(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InputError):
        count_agreement(COSQA, write(tmp_path, "a.jsonl", content))


@pytest.mark.real_data
def test_the_rules_hardly_remove_queries_of_cosqa(real_data: Path) -> None:
    queries = [row["query"] for row in read_queries([real_data / "cosqa_search_dev_500.jsonl"])]
    assert (len(queries), sum(find_rule(COSQA, query) is not None for query in queries)) == (500, 1)
    texts = [rule.text for rule in COSQA if rule.category != "required" and "…" not in rule.text]
    assert sum(find_rule(COSQA, query) is not None or any(map(query.lower().count, texts)) for query in queries) == 5


@pytest.mark.real_data
def test_webquery_repeats_every_query(real_data: Path) -> None:
    removals = filter_texts(*(row["query"] for row in read_queries([real_data / "webquery_queries.txt"])))
    assert Counter(row.get("removed_by") for row in removals) == {None: 522, "duplicate": 522, "near duplicate": 2}
