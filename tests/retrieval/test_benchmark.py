"""A run as a benchmark, and the hash of a benchmark."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent.datasets.benchmark import Benchmark
from agent.errors import UsageError
from agent.retrieval.benchmark import open_benchmark
from agent.runs.store.reviews import Review, ReviewLog
from agent.types import Pair
from tests.exports.runs import make_run

ROWS = {
    "a": ("sort", "one", 1),
    "b": ("sort", "two", 0),
    "c": ("join", "one", 1),
    "d": ("join", "three", None),
    "e": ("join", "one", 0),
}


def write_run(folder: Path, rows: dict[str, tuple[str, str, int | None]] = ROWS, **languages: str) -> Path:
    pairs = [
        Pair(id=name, query=query, code=code, language=languages.get(name, "python"))
        for name, (query, code, _) in rows.items()
    ]
    return make_run(folder / "run", pairs, {name: {"label": label} for name, (*_, label) in rows.items()})


def test_a_run_becomes_a_benchmark_with_its_labels_as_grades(tmp_path: Path) -> None:
    benchmark = open_benchmark(write_run(tmp_path))
    assert benchmark.queries == {"q1": "sort", "q2": "join"}
    assert benchmark.codes == {"c1": "one", "c2": "two", "c3": "three"}
    assert benchmark.grades == {"q1": {"c1": 1, "c2": 0}, "q2": {"c1": 1}}
    assert [note.split()[0:3] for note in benchmark.notes] == [["not", "judged:", "1"], ["1", "repeated", "grade"]]
    assert (benchmark.name, benchmark.language) == ("run", "python")


def test_the_majority_label_of_several_rounds_counts(tmp_path: Path) -> None:
    pairs = [Pair(id="a", query="sort", code="one"), Pair(id="b", query="sort", code="two")]
    rounds = ({"a": {"label": 1}, "b": {"label": 0}}, {"a": {"label": 0}, "b": {"label": 1}}, {"label": 1})
    assert open_benchmark(make_run(tmp_path / "run", pairs, *rounds)).grades == {"q1": {"c1": 1, "c2": 1}}
    tie = make_run(tmp_path / "tie", pairs[:1], {"label": 1}, {"label": 0})
    with pytest.raises(UsageError, match=r"tie.*grades"):
        open_benchmark(tie)


def test_additional_snippets_are_searched_with_those_of_the_run(tmp_path: Path) -> None:
    more = tmp_path / "more.jsonl"
    more.write_text("".join(json.dumps({"code": code}) + "\n" for code in ("two", "four")))
    assert list(open_benchmark(write_run(tmp_path), [more]).codes.values()) == ["one", "two", "three", "four"]


def test_a_run_with_several_languages_requires_a_language(tmp_path: Path) -> None:
    run = write_run(tmp_path, b="sql", c="sql")
    with pytest.raises(UsageError, match=r"python, sql.*--language"):
        open_benchmark(run)
    benchmark = open_benchmark(run, language="SQL")
    assert (benchmark.language, list(benchmark.codes.values())) == ("sql", ["two", "one"])


def test_generated_code_in_a_run_requires_a_review_that_confirms_it(tmp_path: Path) -> None:
    labels: dict[str, list[Any]] = {"real": [], "new": [], "confirmed": [1], "rejected": [0], "disputed": [1, 0]}
    meta = {name: {"source": "web" if name == "real" else "generated"} for name in labels}
    run = make_run(tmp_path / "run", [Pair(id=n, query="sort", code=n, meta=meta[n]) for n in labels], {"label": 1})
    log, now = ReviewLog(run / "reviews.jsonl"), datetime.now(UTC)
    for name in labels:
        for i, label in enumerate(labels[name]):
            log.append(Review(id=name, label=label, reviewer=f"r{i}", at=now, blind=True, source="queue"))
    benchmark = open_benchmark(run)
    assert list(benchmark.codes.values()) == ["real", "confirmed"]
    assert ["3 pairs" in note and "--with-generated" in note for note in benchmark.notes] == [True]
    everything = open_benchmark(run, with_generated=True)
    assert (len(everything.codes), everything.notes) == (5, ())


def test_everything_that_affects_scores_affects_the_hash(tmp_path: Path) -> None:
    benchmark = open_benchmark(write_run(tmp_path))
    reordered = {query: dict(reversed(grades.items())) for query, grades in reversed(benchmark.grades.items())}
    assert replace(benchmark, name="other", notes=(), grades=reordered).sha256 == benchmark.sha256
    variants: list[Benchmark] = [
        replace(benchmark, queries={**benchmark.queries, "q1": "sort!"}),
        replace(benchmark, queries={}, codes={**benchmark.queries, **benchmark.codes}),
        replace(benchmark, codes={**benchmark.codes, "c9": "x"}),
        replace(benchmark, codes=dict(reversed(benchmark.codes.items()))),
        replace(benchmark, grades={**benchmark.grades, "q1": {"c1": 1}}),
        replace(benchmark, answers={"q1": "one"}),
    ]
    assert len({benchmark.sha256, *(variant.sha256 for variant in variants)}) == 7
