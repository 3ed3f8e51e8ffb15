"""CoSQA's search task and CoSQA+, in their published formats."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from agent.datasets.benchmark import Benchmark
from agent.errors import InputError, UsageError
from agent.retrieval.benchmark import open_benchmark
from agent.types import Pair
from tests.evaluation.runs import write_lines
from tests.exports.runs import export_run, make_run

CODES = [{"code-idx": 0, "code": "def a(): pass"}, {"code-idx": 7, "code": "def b(): pass"}]
QUERIES = [
    {"query-idx": 0, "id": "cosqa-train-1", "query": "do a", "code-idx": 7, "label": 1},
    {"query-idx": 1, "id": "cosqa-train-2", "query": "do b", "code-idx": 0, "label": 1},
]


def write(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value, indent=1))
    return path


def get_content(benchmark: Benchmark) -> tuple[object, object, object]:
    return dict(benchmark.queries), dict(benchmark.codes), {query: dict(g) for query, g in benchmark.grades.items()}


def test_each_query_of_the_search_task_has_one_relevant_function(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "dev.jsonl", QUERIES)
    codes = write_lines(tmp_path / "codes.jsonl", CODES)
    benchmark = open_benchmark(path, [codes])
    assert get_content(benchmark) == (
        {"0": "do a", "1": "do b"},
        {"0": "def a(): pass", "7": "def b(): pass"},
        {"0": {"7": 1}, "1": {"0": 1}},
    )
    assert (benchmark.name, benchmark.language) == ("dev", "python")
    assert benchmark.notes[0].endswith(": 'id'")


def test_the_published_format_of_the_search_task_is_read(tmp_path: Path) -> None:
    rows = [{"idx": "cosqa-train-1", "doc": "do a", "code": "def b(): pass", "label": 1, "retrieval_idx": 7}]
    path = write(tmp_path / "cosqa-retrieval-dev-500.json", rows)
    codes = write(tmp_path / "code_idx_map.txt", {row["code"]: row["code-idx"] for row in CODES})
    benchmark = open_benchmark(path, [codes])
    assert get_content(benchmark) == (
        {"cosqa-train-1": "do a"},
        {"0": "def a(): pass", "7": "def b(): pass"},
        {"cosqa-train-1": {"7": 1}},
    )


def test_the_search_task_needs_the_option_codes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--codes"):
        open_benchmark(write_lines(tmp_path / "dev.jsonl", QUERIES))


def test_an_error_locates_a_grade_for_an_unknown_function(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "dev.jsonl", QUERIES)
    with pytest.raises(InputError, match=r"dev.jsonl:2: .*snippet '0'"):
        open_benchmark(path, [write_lines(tmp_path / "codes.jsonl", CODES[1:])])


def test_functions_with_equal_text_are_merged_and_counted(tmp_path: Path) -> None:
    duplicates = [{"code-idx": 9, "code": "def b(): pass"}]
    queries = [*QUERIES, {"query-idx": 0, "query": "do a", "code-idx": 9, "label": 0}]
    codes = write_lines(tmp_path / "codes.jsonl", CODES + duplicates)
    benchmark = open_benchmark(write_lines(tmp_path / "dev.jsonl", queries), [codes])
    assert list(benchmark.codes) == ["0", "7"]
    assert benchmark.grades["0"] == {"7": 1}
    assert [re.findall(r"\d+", note) for note in (benchmark.notes[0], benchmark.notes[-1])] == [["3", "2"], ["1"]]


def test_an_error_locates_a_duplicate_function(tmp_path: Path) -> None:
    codes = write_lines(tmp_path / "codes.jsonl", [*CODES, {"code-idx": 7, "code": "x"}])
    with pytest.raises(InputError, match=r"codes.jsonl:3: .*'7'"):
        open_benchmark(write_lines(tmp_path / "dev.jsonl", QUERIES), [codes])


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        ({"query-idx": 2, "query": "x", "code-idx": 0, "label": "maybe"}, "'label' is 'maybe'"),
        ({"query-idx": 2, "query": "x", "code-idx": 0, "label": None}, "'label'"),
        ({"query-idx": 2, "query": "x", "code-idx": 0, "label": 10**400}, "'label' is 1000"),
        ({"query-idx": 2, "query": " ", "code-idx": 0, "label": 1}, "'query' or 'doc' is ' '"),
        ({"query-idx": [2], "query": "x", "code-idx": 0, "label": 1}, "'query-idx' or 'idx' is a list"),
        ({"query-idx": 2, "query": "x", "label": 1}, "'code-idx' or 'retrieval_idx'"),
    ],
)
def test_an_error_locates_a_bad_row(row: dict[str, Any], cause: str, tmp_path: Path) -> None:
    codes = write_lines(tmp_path / "codes.jsonl", CODES)
    with pytest.raises(InputError) as caught:
        open_benchmark(write_lines(tmp_path / "dev.jsonl", [*QUERIES, row]), [codes])
    assert str(caught.value).startswith(f"{tmp_path}/dev.jsonl:3: ")
    assert cause in str(caught.value)


@pytest.mark.parametrize("text", ["[1, 2]", "{"])
def test_a_damaged_code_map_is_rejected(text: str, tmp_path: Path) -> None:
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
    benchmark = open_benchmark(tmp_path)
    assert get_content(benchmark) == (
        {"0": "do a", "1": "do b"},
        {"0": "def a(): pass", "7": "def b(): pass"},
        {"0": {"0": 1, "7": 0}, "1": {"7": 1}},
    )


def test_a_release_with_only_matches_has_a_note_about_missing_judgements(tmp_path: Path) -> None:
    write(tmp_path / "test_agent_query.json", [{"query-idx": 0, "query": "do a"}])
    write(tmp_path / "test_agent_codebase.json", CODES)
    write(tmp_path / "test_agent_pairs_true.json", PAIRS[:1])
    benchmark = open_benchmark(tmp_path)
    assert benchmark.grades == {"0": {"0": 1}}
    assert ["test_agent_pairs.json" in note for note in benchmark.notes[1:]] == [True]
    assert "CoSQA+" in benchmark.notes[0]


def test_two_releases_in_a_folder_are_rejected(tmp_path: Path) -> None:
    write(tmp_path / "codebase.json", CODES)
    write(tmp_path / "test_agent_codebase.json", CODES)
    with pytest.raises(
        UsageError, match=r"codebase\.json.*test_agent_codebase\.json|test_agent_codebase\.json.*codebase\.json"
    ):
        open_benchmark(tmp_path)


def test_a_release_without_its_queries_is_rejected(tmp_path: Path) -> None:
    write(tmp_path / "codebase.json", CODES)
    with pytest.raises(InputError, match=r"query\.json"):
        open_benchmark(tmp_path)


def test_an_export_is_read_back(tmp_path: Path) -> None:
    pairs = [
        Pair(id=str(n), query=query, code=code) for n, query, code in ((1, "a", "x"), (2, "a", "y"), (3, "b", "y"))
    ]
    run = make_run(tmp_path / "run", pairs, {"1": {"label": 1}, "2": {"label": 0}, "3": {"label": 1}})
    export_run(run, "cosqa-plus", tmp_path / "plus")
    benchmark = open_benchmark(tmp_path / "plus")
    assert get_content(benchmark) == (
        {"0": "a", "1": "b"},
        {"0": "x", "1": "y"},
        {"0": {"0": 1, "1": 0}, "1": {"1": 1}},
    )


def test_an_error_about_an_unknown_format_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'x'.*CoSQA.*BEIR"):
        open_benchmark(write_lines(tmp_path / "other.jsonl", [{"x": 1}]))


@pytest.mark.real_data
def test_the_whole_search_task_is_read() -> None:
    data = Path(os.environ["AGENT_REAL_DATA"])
    benchmark = open_benchmark(data / "cosqa_search_dev_500.jsonl", [data / "cosqa_search_codes_6267.jsonl"])
    assert (len(benchmark.queries), len(benchmark.codes), len(benchmark.notes)) == (500, 6267, 1)
    assert {tuple(benchmark.grades[query].values()) for query in benchmark.queries} == {(1,)}
    assert all(set(benchmark.grades[query]) <= set(benchmark.codes) for query in benchmark.queries)
