"""CoSQA's search task and CoSQA+, in the forms in which they are published."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from agent.datasets.benchmark import Benchmark
from agent.errors import InputError, UsageError
from agent.retrieval.benchmark import open_benchmark
from agent.types import Pair
from tests.exports.runs import exported, make_run

CODES = [{"code-idx": 0, "code": "def a(): pass"}, {"code-idx": 7, "code": "def b(): pass"}]
QUERIES = [
    {"query-idx": 0, "id": "cosqa-train-1", "query": "do a", "code-idx": 7, "label": 1},
    {"query-idx": 1, "id": "cosqa-train-2", "query": "do b", "code-idx": 0, "label": 1},
]


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value, indent=1))
    return path


def content(benchmark: Benchmark) -> tuple[object, object, object]:
    return dict(benchmark.queries), dict(benchmark.codes), {query: dict(g) for query, g in benchmark.grades.items()}


def test_the_search_task_has_one_relevant_code_a_query(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "dev.jsonl", QUERIES)
    codes = write_lines(tmp_path / "codes.jsonl", CODES)
    found = open_benchmark(path, [codes])
    assert content(found) == (
        {"0": "do a", "1": "do b"},
        {"0": "def a(): pass", "7": "def b(): pass"},
        {"0": {"7": 1}, "1": {"0": 1}},
    )
    assert (found.name, found.language) == ("dev", "python")
    assert found.notes[0].endswith("ignored columns: 'id'")


def test_the_published_form_of_the_search_task_is_read(tmp_path: Path) -> None:
    published = [{"idx": "cosqa-train-1", "doc": "do a", "code": "def b(): pass", "label": 1, "retrieval_idx": 7}]
    path = write(tmp_path / "cosqa-retrieval-dev-500.json", published)
    codes = write(tmp_path / "code_idx_map.txt", {row["code"]: row["code-idx"] for row in CODES})
    found = open_benchmark(path, [codes])
    assert content(found) == (
        {"cosqa-train-1": "do a"},
        {"0": "def a(): pass", "7": "def b(): pass"},
        {"cosqa-train-1": {"7": 1}},
    )


def test_the_search_task_without_codes_says_which_option_gives_them(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--codes"):
        open_benchmark(write_lines(tmp_path / "dev.jsonl", QUERIES))


def test_a_grade_for_a_code_that_is_not_there_is_named_with_its_line(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "dev.jsonl", QUERIES)
    with pytest.raises(InputError, match=r"dev.jsonl:2: grades the code '0', which is not among the codes"):
        open_benchmark(path, [write_lines(tmp_path / "codes.jsonl", CODES[1:])])


def test_codes_of_equal_text_are_one_item_and_counted(tmp_path: Path) -> None:
    again = [{"code-idx": 9, "code": "def b(): pass"}]
    queries = [*QUERIES, {"query-idx": 0, "query": "do a", "code-idx": 9, "label": 0}]
    codes = write_lines(tmp_path / "codes.jsonl", CODES + again)
    found = open_benchmark(write_lines(tmp_path / "dev.jsonl", queries), [codes])
    assert list(found.codes) == ["0", "7"]
    assert found.grades["0"] == {"7": 1}
    assert (found.notes[0], found.notes[-1]) == (
        "3 codes are 2 items: those of equal text are one",
        "1 repeated grade of a query and code with another value: the highest counts",
    )


def test_a_code_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    codes = write_lines(tmp_path / "codes.jsonl", [*CODES, {"code-idx": 7, "code": "x"}])
    with pytest.raises(InputError, match=r"codes.jsonl:3: the code '7' is there twice"):
        open_benchmark(write_lines(tmp_path / "dev.jsonl", QUERIES), [codes])


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        (
            {"query-idx": 2, "query": "x", "code-idx": 0, "label": "maybe"},
            "'label' is 'maybe'; a whole number up to 100 expected",
        ),
        ({"query-idx": 2, "query": "x", "code-idx": 0, "label": True}, "'label' is True"),
        ({"query-idx": 2, "query": "x", "code-idx": 0, "label": 10**400}, "'label' is 1000"),
        ({"query-idx": 2, "query": " ", "code-idx": 0, "label": 1}, "' '; text expected"),
        ({"query-idx": [2], "query": "x", "code-idx": 0, "label": 1}, "is a list; text or a whole number expected"),
        ({"query-idx": 2, "query": "x", "label": 1}, "no field 'code-idx' or 'retrieval_idx'"),
    ],
)
def test_a_bad_row_is_named_with_its_line(row: dict[str, Any], cause: str, tmp_path: Path) -> None:
    codes = write_lines(tmp_path / "codes.jsonl", CODES)
    with pytest.raises(InputError) as caught:
        open_benchmark(write_lines(tmp_path / "dev.jsonl", [*QUERIES, row]), [codes])
    assert str(caught.value).startswith(f"{tmp_path}/dev.jsonl:3: ")
    assert cause in str(caught.value)


@pytest.mark.parametrize("text", ["[1, 2]", "{"])
def test_a_damaged_map_of_codes_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "code_idx_map.txt").write_text(text)
    with pytest.raises(InputError, match=r"code_idx_map\.txt"):
        open_benchmark(write_lines(tmp_path / "dev.jsonl", QUERIES), [tmp_path / "code_idx_map.txt"])


PAIRS = [
    {"pair-idx": 0, "query-idx": 0, "query": "do a", "code-idx": 0, "code": "def a(): pass", "label": 1},
    {"pair-idx": 1, "query-idx": 0, "query": "do a", "code-idx": 7, "code": "def b(): pass", "label": 0},
    {"pair-idx": 2, "query-idx": 1, "query": "do b", "code-idx": 7, "code": "def b(): pass", "label": "yes"},
]


@pytest.mark.parametrize(
    ("queries", "codebase", "pairs"),
    [
        ("query.json", "codebase.json", "pairs.json"),
        ("query.json", "gpt4o_augment_codebase.json", "gpt4o_augment_query_code_pairs.json"),
        ("test_agent_query.json", "test_agent_codebase.json", "test_agent_pairs.json"),
    ],
)
def test_a_release_of_cosqa_plus_is_read(queries: str, codebase: str, pairs: str, tmp_path: Path) -> None:
    write(tmp_path / queries, [{"query-idx": row["query-idx"], "query": row["query"]} for row in QUERIES])
    write(tmp_path / codebase, CODES)
    write(tmp_path / pairs, PAIRS)
    found = open_benchmark(tmp_path)
    assert content(found) == (
        {"0": "do a", "1": "do b"},
        {"0": "def a(): pass", "7": "def b(): pass"},
        {"0": {"0": 1, "7": 0}, "1": {"7": 1}},
    )


def test_of_matches_alone_the_others_are_not_judged_and_that_is_said(tmp_path: Path) -> None:
    write(tmp_path / "test_agent_query.json", [{"query-idx": 0, "query": "do a"}])
    write(tmp_path / "test_agent_codebase.json", CODES)
    write(tmp_path / "test_agent_pairs_true.json", PAIRS[:1])
    found = open_benchmark(tmp_path)
    assert found.grades == {"0": {"0": 1}}
    assert found.notes[1:] == ("without test_agent_pairs.json no code counts as judged not relevant",)
    assert "CoSQA+" in found.notes[0]


def test_two_releases_in_a_folder_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "codebase.json", CODES)
    write(tmp_path / "test_agent_codebase.json", CODES)
    with pytest.raises(UsageError, match="several releases"):
        open_benchmark(tmp_path)


def test_a_release_without_its_queries_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "codebase.json", CODES)
    with pytest.raises(InputError, match=r"query.json: no such file"):
        open_benchmark(tmp_path)


def test_an_export_is_read_back(tmp_path: Path) -> None:
    pairs = [
        Pair(id=str(n), query=query, code=code) for n, query, code in ((1, "a", "x"), (2, "a", "y"), (3, "b", "y"))
    ]
    run = make_run(tmp_path / "run", pairs, {"1": {"label": 1}, "2": {"label": 0}, "3": {"label": 1}})
    exported(run, "cosqa-plus", tmp_path / "plus")
    found = open_benchmark(tmp_path / "plus")
    assert content(found) == ({"0": "a", "1": "b"}, {"0": "x", "1": "y"}, {"0": {"0": 1, "1": 0}, "1": {"1": 1}})


def test_what_is_no_benchmark_is_told_which_forms_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no benchmark of a known form \(fields: 'x'\). Known are: CoSQA"):
        open_benchmark(write_lines(tmp_path / "other.jsonl", [{"x": 1}]))


@pytest.mark.real_data
def test_the_whole_search_task_is_read() -> None:
    data = Path(os.environ["AGENT_REAL_DATA"])
    found = open_benchmark(data / "cosqa_search_dev_500.jsonl", [data / "cosqa_search_codes_6267.jsonl"])
    assert (len(found.queries), len(found.codes), len(found.notes)) == (500, 6267, 1)
    assert {tuple(found.grades[query].values()) for query in found.queries} == {(1,)}
    assert all(set(found.grades[query]) <= set(found.codes) for query in found.queries)
