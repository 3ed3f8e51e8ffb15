"""A finished run as a benchmark, and what identifies one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agent.datasets.benchmark import Benchmark
from agent.errors import UsageError
from agent.retrieval.benchmark import open_benchmark
from agent.types import Pair
from tests.exports.runs import make_run

JUDGED = {
    "a": ("sort", "one", 1),
    "b": ("sort", "two", 0),
    "c": ("join", "one", 1),
    "d": ("join", "three", None),
    "e": ("join", "one", 0),
}


def run_of(folder: Path, judged: dict[str, tuple[str, str, int | None]] = JUDGED, **languages: str) -> Path:
    pairs = [
        Pair(id=name, query=query, code=code, language=languages.get(name, "python"))
        for name, (query, code, _) in judged.items()
    ]
    return make_run(folder / "run", pairs, {name: {"label": label} for name, (*_, label) in judged.items()})


def test_a_run_is_a_benchmark_of_its_labels(tmp_path: Path) -> None:
    found = open_benchmark(run_of(tmp_path))
    assert found.queries == {"q1": "sort", "q2": "join"}
    assert found.codes == {"c1": "one", "c2": "two", "c3": "three"}
    assert found.grades == {"q1": {"c1": 1, "c2": 0}, "q2": {"c1": 1}}
    assert found.notes == (
        "1 pair without a label (undecided, an error, not yet): not judged",
        "1 repeated grade of a query and code with another value: the highest counts",
    )
    assert (found.name, found.language) == ("run", "python")


def test_of_several_rounds_the_majority_counts(tmp_path: Path) -> None:
    pairs = [Pair(id="a", query="sort", code="one"), Pair(id="b", query="sort", code="two")]
    rounds = ({"a": {"label": 1}, "b": {"label": 0}}, {"a": {"label": 0}, "b": {"label": 1}}, {"label": 1})
    assert open_benchmark(make_run(tmp_path / "run", pairs, *rounds)).grades == {"q1": {"c1": 1, "c2": 1}}
    tie = make_run(tmp_path / "tie", pairs[:1], {"label": 1}, {"label": 0})
    with pytest.raises(UsageError, match="holds no grades"):
        open_benchmark(tie)


def test_further_codes_are_searched_with_those_of_the_run(tmp_path: Path) -> None:
    more = tmp_path / "more.jsonl"
    more.write_text("".join(json.dumps({"code": code}) + "\n" for code in ("two", "four")))
    assert list(open_benchmark(run_of(tmp_path), [more]).codes.values()) == ["one", "two", "three", "four"]


def test_a_run_of_several_languages_takes_one(tmp_path: Path) -> None:
    run = run_of(tmp_path, b="sql", c="sql")
    with pytest.raises(UsageError, match="python, sql; choose one by --language"):
        open_benchmark(run)
    found = open_benchmark(run, language="SQL")
    assert (found.language, list(found.codes.values())) == ("sql", ["two", "one"])


def test_what_decides_figures_decides_the_hash(tmp_path: Path) -> None:
    found = open_benchmark(run_of(tmp_path))
    reordered = {query: dict(reversed(grades.items())) for query, grades in reversed(found.grades.items())}
    assert replace(found, name="other", notes=(), grades=reordered).sha256 == found.sha256
    changed: list[Benchmark] = [
        replace(found, queries={**found.queries, "q1": "sort!"}),
        replace(found, queries={}, codes={**found.queries, **found.codes}),
        replace(found, codes={**found.codes, "c9": "x"}),
        replace(found, codes=dict(reversed(found.codes.items()))),
        replace(found, grades={**found.grades, "q1": {"c1": 1}}),
        replace(found, answers={"q1": "one"}),
    ]
    assert len({found.sha256, *(each.sha256 for each in changed)}) == 7
