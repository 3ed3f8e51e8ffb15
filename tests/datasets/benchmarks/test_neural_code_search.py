"""Neural Code Search's questions, keyed by row, over a corpus whose source was joined."""

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


def method(number: int, **more: object) -> dict[str, Any]:
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
    codes.write_text("".join(json.dumps(each) + "\n" for each in methods))
    return path, [codes]


def test_two_questions_of_one_stack_overflow_id_are_two(tmp_path: Path) -> None:
    methods = [method(number, code=f"void m{number}() {{}}") for number in (11, 12, 13, 14)]
    found = open_benchmark(*write(tmp_path, QUESTIONS, *methods))
    assert found.queries == {"1": "hide keyboard", "2": "hide keyboard again"}
    assert found.answers == {"1": "hide();", "2": "hide2();"}
    assert found.grades == {"1": {"11": 1, "12": 1}, "2": {"13": 1}}
    assert (list(found.codes), found.language) == (["11", "12", "13", "14"], "java")
    assert found.notes[0].endswith("ignored columns: 'answer_url'")


def test_methods_that_could_not_be_had_are_counted(tmp_path: Path) -> None:
    found = open_benchmark(*write(tmp_path, QUESTIONS, method(11, code="a"), method(12, code=None), method(13)))
    assert found.grades == {"1": {"11": 1}}
    assert found.notes[1:] == ("2 methods without `code` left out", "2 examples not in the corpus left out")


def test_the_corpus_as_published_has_no_source_and_the_error_says_how_to_join_it(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"search_corpus_1.jsonl: no method has its source.*`start_line` to `end_line`"
    ):
        open_benchmark(*write(tmp_path, QUESTIONS, method(11), method(12)))
    with pytest.raises(UsageError, match="by --codes"):
        open_benchmark(write(tmp_path, QUESTIONS)[0])


@pytest.mark.parametrize("examples", [7, ["a"], [True]])
def test_examples_that_are_no_ids_are_refused(examples: object, tmp_path: Path) -> None:
    questions = [QUESTIONS[0], {**QUESTIONS[1], "examples": examples}]
    with pytest.raises(InputError, match=r"json:\d+: element 2: 'examples' is no list of ids"):
        open_benchmark(*write(tmp_path, questions, *(method(n, code=str(n)) for n in (11, 12))))
