"""Any file yields a benchmark or an `AgentError`."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.datasets.benchmark import Benchmark
from agent.errors import AgentError, InputError
from agent.retrieval.benchmark import open_benchmark

WITH_CODES = [
    ("question_id", "intent", "rewritten_intent", "snippet", "prob"),
    ("question_id", "question", "snippet"),
    ("query", "code", "label"),
]
WITHOUT_CODES = [
    ("query-idx", "query", "code-idx", "label"),
    ("idx", "doc", "code", "retrieval_idx", "label"),
    ("Language", "Query", "GitHubUrl", "Relevance"),
    ("stackoverflow_id", "question", "answer", "examples"),
]
CODES = ("code-idx", "code", "id", "url", "language")
likely = st.sampled_from(["1", "2", "3", "python"])
"""Values that make ids, texts and grades of several rows equal."""
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["text", "is_sda"]), inner, max_size=2),
    max_leaves=4,
)
cells = st.integers(0, 15).flatmap(lambda number: likely if number else anything)


def draw_rows(*names: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(st.fixed_dictionaries(dict.fromkeys(names, cells)), min_size=1, max_size=3)


def check(benchmark: Benchmark) -> None:
    assert benchmark.sha256
    assert benchmark.grades.keys() <= benchmark.queries.keys()
    assert len(set(benchmark.codes.values())) == len(benchmark.codes)
    assert all(grades.keys() <= benchmark.codes.keys() for grades in benchmark.grades.values())


@pytest.mark.slow
@given(st.sampled_from(WITH_CODES + WITHOUT_CODES).flatmap(lambda form: draw_rows(*form)), draw_rows(*CODES))
@settings(max_examples=100)
def test_any_rows_yield_a_benchmark_or_an_error(queries: list[dict[str, Any]], codes: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, table in (("queries.json", queries), ("codes.json", codes)):
            (Path(folder) / name).write_text(json.dumps(table))
        needs_codes = tuple(queries[0]) not in WITH_CODES
        with suppress(AgentError):
            check(open_benchmark(Path(folder) / "queries.json", [Path(folder) / "codes.json"] if needs_codes else []))


@given(draw_rows("_id", "title", "text"), draw_rows("_id", "text"), draw_rows("query-id", "corpus-id", "score"))
def test_any_folder_in_beir_format_yields_a_benchmark_or_an_error(
    corpus: list[dict[str, Any]], queries: list[dict[str, Any]], qrels: list[dict[str, Any]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "qrels").mkdir()
        for name, table in (("corpus.jsonl", corpus), ("queries.jsonl", queries), ("qrels/test.jsonl", qrels)):
            (Path(folder) / name).write_text("".join(json.dumps(row) + "\n" for row in table))
        with suppress(AgentError):
            check(open_benchmark(folder))


def test_pipes_and_standard_input_are_rejected_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(InputError, match="pipe"):
        open_benchmark(tmp_path / "pipe.jsonl")
    with pytest.raises(InputError, match="standard input"):
        open_benchmark("-")
