"""Neural Code Search: questions with row numbers as ids, and a corpus with its code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.errors import InputError, UsageError
from agent.retrieval.benchmark import open_benchmark

QUESTIONS: list[dict[str, Any]] = [
    {
        "stackoverflow_id": "5",
        "question": "hide keyboard",
        "answer": "hide();",
        "examples": [11, 12],
        "answer_url": "u",
    },
    {"stackoverflow_id": "5", "question": "hide keyboard again", "answer": "hide2();", "examples": [13]},
]


def make_method(number: int, **more: object) -> dict[str, Any]:
    return {
        "id": number,
        "filepath": "o/r/A.java",
        "method_name": "m",
        "start_line": 1,
        "end_line": 2,
        "url": "u",
        **more,
    }


def write(folder: Path, questions: list[dict[str, Any]], *methods: dict[str, Any]) -> tuple[Path, list[Path]]:
    path, codes = folder / "287_android_questions.json", folder / "search_corpus_1.jsonl"
    path.write_text(json.dumps(questions, indent=2))
    codes.write_text("".join(json.dumps(row) + "\n" for row in methods))
    return path, [codes]


def test_two_questions_may_have_the_same_stack_overflow_id(tmp_path: Path) -> None:
    methods = [make_method(number, code=f"void m{number}() {{}}") for number in (11, 12, 13, 14)]
    benchmark = open_benchmark(*write(tmp_path, QUESTIONS, *methods))
    assert benchmark.queries == {"1": "hide keyboard", "2": "hide keyboard again"}
    assert benchmark.answers == {"1": "hide();", "2": "hide2();"}
    assert benchmark.grades == {"1": {"11": 1, "12": 1}, "2": {"13": 1}}
    assert (list(benchmark.codes), benchmark.language) == (["11", "12", "13", "14"], "java")
    assert benchmark.notes[0].endswith(": 'answer_url'")


def test_methods_without_code_are_skipped_and_counted(tmp_path: Path) -> None:
    benchmark = open_benchmark(
        *write(tmp_path, QUESTIONS, make_method(11, code="a"), make_method(12, code=None), make_method(13))
    )
    assert benchmark.grades == {"1": {"11": 1}}
    assert ["2 methods" in benchmark.notes[1], "2 examples" in benchmark.notes[2]] == [True, True]


def test_an_error_says_how_to_add_code_to_the_published_corpus(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"search_corpus_1.jsonl: .*`code`.*`start_line`.*`end_line`"):
        open_benchmark(*write(tmp_path, QUESTIONS, make_method(11), make_method(12)))
    with pytest.raises(UsageError, match="--codes"):
        open_benchmark(write(tmp_path, QUESTIONS)[0])


@pytest.mark.parametrize("examples", [7, ["a"], [True]])
def test_examples_must_be_ids(examples: object, tmp_path: Path) -> None:
    questions = [QUESTIONS[0], {**QUESTIONS[1], "examples": examples}]
    with pytest.raises(InputError, match=r"json:\d+: element 2: 'examples'"):
        open_benchmark(*write(tmp_path, questions, *(make_method(n, code=str(n)) for n in (11, 12))))
