"""A benchmark of three queries and five snippets, and a retrieval folder with the rankings of two searchers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from agent.retrieval.benchmark import open_benchmark
from agent.retrieval.folder import BenchmarkSource, RankingRecord, open_for_writing, prepare_folder
from agent.retrieval.rankings import format_trec

QUERIES = {"q1": ("add numbers", "c1", 1), "q2": ("multiply numbers", "c2", 1), "q3": ("take the first", "c5", 0)}
CODES = {
    "c1": "def add(a, b):\n    return a + b\n",
    "c2": "def multiply(a, b):\n    return a * b\n",
    "c3": "def total(values):\n    return sum(values)\n",
    "c4": "def subtract(a, b):\n    return a - b\n",
    "c5": "def last(values):\n    return values[-1]\n",
}
RANKINGS = {
    "one": {"q1": {"c3": 3.0, "c1": 2.0, "c4": 1.0}, "q2": {"c2": 1.0}, "q3": {"c5": 2.0, "c3": 1.0}},
    "two": {"q1": {"c4": 2.0, "c3": 2.0, "c1": 1.0}, "q2": {"c3": 2.0, "c2": 1.0}, "q3": {"c3": 1.0}},
}
JUDGED = {("q1", "c3"): 1, ("q1", "c4"): 0, ("q2", "c3"): 0, ("q3", "c3"): 1}
"""The pairs of the pool at depth 2, with their labels in tests."""


def write_benchmark(
    folder: Path, queries: Mapping[str, tuple[str, str, int]] = QUERIES, codes: Mapping[str, str] = CODES
) -> BenchmarkSource:
    """Write the benchmark in the format of CoSQA's search task."""
    rows = [{"query-idx": q, "query": t, "code-idx": c, "label": grade} for q, (t, c, grade) in queries.items()]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"code-idx": code, "code": text} for code, text in codes.items()]
    (folder / "codes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return BenchmarkSource(path=str(folder / "queries.jsonl"), codes=[str(folder / "codes.jsonl")])


def make_folder(
    folder: Path,
    rankings: Mapping[str, Mapping[str, Mapping[str, float]]] = RANKINGS,
    queries: Mapping[str, tuple[str, str, int]] = QUERIES,
    codes: Mapping[str, str] = CODES,
) -> Path:
    """Create a retrieval folder for the benchmark with these rankings, and return its path."""
    source = write_benchmark(folder, queries, codes)
    path = folder / "retrieval"
    with prepare_folder(path, open_benchmark(source.path, source.codes), source, code_view="full", depth=1000):
        pass
    add_rankings(path, rankings)
    return path


def add_rankings(path: Path, rankings: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """Add rankings to a retrieval folder."""
    with open_for_writing(path) as folder:
        for name, ranking in rankings.items():
            lines = [line for query, scores in ranking.items() for line in format_trec(query, scores, name)]

            def write(file: TextIO, lines: list[str] = lines) -> RankingRecord:
                file.writelines(lines)
                return RankingRecord(kind="searched", found=len(lines), depth=5)

            folder.add_ranking(name, write)
