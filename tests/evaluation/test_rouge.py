"""ROUGE of generated answers: examples worked by hand, means, intervals, and files that cannot be scored."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ExtraMissing, InputError
from agent.evaluation.rouge import MAX_CHARACTERS, MEASURES, score_answers
from agent.evaluation.statistics import BootstrapSettings
from tests.evaluation.runs import write_lines
from tests.exports.runs import read_lines

SETTINGS = BootstrapSettings(resamples=400)
MALFORMED = [{"reference": None}, {"answer": 3}, {"answer": " "}, {"status": None}, {"id": {}}]


def write_answers(path: Path, *texts: tuple[str, str | None], **fields: Any) -> Path:
    """Write a row for each reference and answer."""
    rows = [{"id": str(number), "reference": one, "answer": other} for number, (one, other) in enumerate(texts)]
    return write_lines(path, [{**row, "model": "m", "status": "answered", **fields} for row in rows])


def score(path: Path) -> dict[str, Any]:
    return score_answers(path, SETTINGS, lambda *_: None)


@pytest.mark.parametrize(
    ("reference", "answer", "values"),
    [
        # 5 of 6 words, 3 of 5 word pairs, and the subsequence "the cat on the mat"
        ("the cat sat on the mat", "The cat lay on the mat.", [5 / 6, 3 / 5, 5 / 6]),
        # precision 2/2 and recall 2/4; no word pair; a subsequence of one word: precision 1/2 and recall 1/4
        ("a b c d", "c a", [2 / 3, 0, 1 / 3]),
        # a repeated word counts as often as in the other text: precision 1/3, recall 1/1
        ("go", "go go go", [1 / 2, 0, 1 / 2]),
        ("sorted lists", "sorting list", [1, 1, 1]),  # both stems are equal
        ("x == y", "x != y", [1, 1, 1]),  # punctuation is ignored
        ("\u6392\u5e8f", "\u6392\u5e8f", [0, 0, 0]),  # only the letters a to z count
        pytest.param("a", "a" + " " * MAX_CHARACTERS + "b " * 1_000_000, [1, 0, 1], id="limit"),
    ],
)
def test_examples_worked_by_hand(tmp_path: Path, reference: str, answer: str, values: list[float]) -> None:
    scores = score(write_answers(tmp_path / "one.jsonl", (reference, answer)))["scores"]
    assert [scores[name]["f1"] for name in MEASURES] == pytest.approx(values)


def test_means_and_intervals_are_over_the_questions_with_an_answer(tmp_path: Path) -> None:
    texts = [("a b c", "a b c")] * 30 + [("a b c", "x y z")] * 10
    answered = write_answers(tmp_path / "answered.jsonl", *texts)
    report = score(answered)
    empty = {"reference": "a b c", "answer": None, "model": "other", "status": "empty"}
    more = score(write_lines(answered, [*read_lines(answered), *({"id": f"empty-{n}", **empty} for n in range(5))]))
    assert (more["statuses"], more["models"]) == ({"answered": 40, "empty": 5}, ["m", "other"])
    assert more["scores"] == report["scores"]
    rouge = report["scores"]["rougeL"]
    assert rouge["f1"] == pytest.approx(0.75)
    assert 0.55 < rouge["interval"]["low"] < 0.70 < 0.80 < rouge["interval"]["high"] < 0.95


@pytest.mark.parametrize("fields", [*MALFORMED, {"answer": None}])
def test_a_malformed_row_and_a_file_without_answers_are_errors(tmp_path: Path, fields: dict[str, Any]) -> None:
    empty, row = read_lines(path := write_answers(tmp_path / "bad.jsonl", ("a", None), ("a", "a")))
    write_lines(path, [empty, {**row, **fields}])
    with pytest.raises(InputError) as error:
        score(path)
    assert (error.value.path, error.value.line) == (str(path), 2 if fields in MALFORMED else None)


def test_a_missing_library_is_an_error_that_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    with pytest.raises(ExtraMissing) as error:
        score(write_answers(tmp_path / "one.jsonl", ("a", "a")))
    assert error.value.extra == "corpus"
