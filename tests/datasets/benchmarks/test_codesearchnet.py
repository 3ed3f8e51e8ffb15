"""CodeSearchNet's ratings, joined with its corpus by URL."""

from __future__ import annotations

import csv
import gzip
import json
import re
from pathlib import Path

import pytest

from agent.errors import InputError, UsageError
from agent.retrieval.benchmark import open_benchmark

Rating = tuple[str, str, str, object]
URL = "https://github.com/o/r/blob/c0ffee/m.py#L{}-L9"

RATINGS: list[Rating] = [
    ("Go", "sort list", URL.format(90), 3),
    ("Python", "sort list", URL.format(1), 3),
    ("Python", "sort list", URL.format(2), 2),
    ("Python", "read file", URL.format(1), 0),
    ("Python", "read file", URL.format(3), 1),
    ("Python", "read file", URL.format(3), 3),
    ("Python", "read file", URL.format(3), 0),
    ("Python", "all zero", URL.format(2), 0),
]


def write_ratings(folder: Path, ratings: list[Rating]) -> Path:
    path = folder / "annotationStore.csv"
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["Language", "Query", "GitHubUrl", "Relevance", "Notes"])
        table.writerows([*rating, 'a note, with "quotes"\nand lines'] for rating in ratings)
    return path


def write_corpus(folder: Path, *numbers: int, language: str = "python") -> Path:
    path = folder / f"{language}_train_0.jsonl.gz"
    with gzip.open(path, "wt") as file:
        for number in numbers:
            code = f"def f{number}(): pass"
            row = {"url": URL.format(number), "code": code, "original_string": code, "language": language}
            file.write(json.dumps(row) + "\n")
    return path


def test_any_rating_of_three_makes_a_pair_relevant(tmp_path: Path) -> None:
    benchmark = open_benchmark(write_ratings(tmp_path, RATINGS), [write_corpus(tmp_path, 1, 2, 3, 4)])
    assert benchmark.queries == {"1": "sort list", "2": "read file", "3": "all zero"}
    assert benchmark.codes == {URL.format(number): f"def f{number}(): pass" for number in (1, 2, 3, 4)}
    assert benchmark.grades == {
        "1": {URL.format(1): 1, URL.format(2): 0},
        "2": {URL.format(1): 0, URL.format(3): 1},
        "3": {URL.format(2): 0},
    }
    assert (benchmark.name, benchmark.language) == ("annotationStore-python", "python")
    assert re.findall(r"\d+", *benchmark.notes[1:]) == ["2", "2", "3", "0", "0"]


def test_ratings_of_functions_outside_the_corpus_are_counted(tmp_path: Path) -> None:
    benchmark = open_benchmark(write_ratings(tmp_path, RATINGS), [write_corpus(tmp_path, 1, 4)])
    assert benchmark.grades == {"1": {URL.format(1): 1}, "2": {URL.format(1): 0}}
    assert list(benchmark.queries) == ["1", "2", "3"]
    assert re.findall(r"\d+", benchmark.notes[-1])[-2:] == ["1", "2"]


def test_the_rule_of_the_paper_yields_399_pairs_over_95_queries(tmp_path: Path) -> None:
    """Rate 8 functions for each of 99 queries three times. 19 queries have five matches, 76 four, 4 none."""
    ratings: list[Rating] = []
    for query in range(99):
        matches = 0 if query >= 95 else 5 if query < 19 else 4
        for number in range(8):
            url = URL.format(query * 8 + number)
            ratings += [("Python", f"query {query}", url, rating) for rating in (1, 3 if number < matches else 2, 0)]
    benchmark = open_benchmark(write_ratings(tmp_path, ratings), [write_corpus(tmp_path, *range(99 * 8))])
    relevant = [sum(grade > 0 for grade in benchmark.grades.get(query, {}).values()) for query in benchmark.queries]
    assert (len(relevant), sum(relevant), sum(map(bool, relevant))) == (99, 399, 95)
    assert re.findall(r"\d+", benchmark.notes[-1])[:3] == ["399", "95", "393"]


def test_an_option_chooses_the_language(tmp_path: Path) -> None:
    codes = [write_corpus(tmp_path, 1, 2), write_corpus(tmp_path, 90, 91, language="go")]
    benchmark = open_benchmark(write_ratings(tmp_path, RATINGS), codes, language="golang")
    assert (benchmark.language, benchmark.queries) == ("go", {"1": "sort list"})
    assert list(benchmark.codes) == [URL.format(90), URL.format(91)]
    with pytest.raises(InputError, match=r"ruby.* go, python"):
        open_benchmark(write_ratings(tmp_path, RATINGS), codes, language="ruby")


def test_functions_with_a_duplicate_url_are_skipped_and_counted(tmp_path: Path) -> None:
    benchmark = open_benchmark(write_ratings(tmp_path, RATINGS), [write_corpus(tmp_path, 1, 2, 3, 1)])
    assert len(benchmark.codes) == 3
    assert "1 function" in benchmark.notes[1]


def test_errors_have_a_location(tmp_path: Path) -> None:
    path, codes = write_ratings(tmp_path, RATINGS), write_corpus(tmp_path, 8, 9)
    with pytest.raises(UsageError, match="--codes"):
        open_benchmark(path)
    with pytest.raises(InputError, match="grades"):
        open_benchmark(path, [codes])
    for rating in (4, "good"):
        path = write_ratings(tmp_path, [("Python", "sort", URL.format(1), rating)])
        with pytest.raises(InputError, match=rf"annotationStore.csv:2: row 1: 'Relevance' is '?{rating}"):
            open_benchmark(path, [codes])
