"""Tables of pairs as benchmarks: CoNaLa, StaQC and labelled pairs. Labels are read or refused, never ignored."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from agent.errors import InputError, UsageError
from agent.retrieval.benchmark import open_benchmark

CONALA = [
    {"intent": "sort it", "rewritten_intent": "sort list `x`", "snippet": "sorted(x)", "question_id": 1},
    {"intent": "sort it", "rewritten_intent": None, "snippet": "x.sort()", "question_id": 1},
    {"intent": "order", "rewritten_intent": "sort list `x`", "snippet": "x.sort()", "question_id": 2},
]


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_rewritten_intent_is_the_query_where_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "conala-train.json"
    path.write_text(json.dumps(CONALA))
    found = open_benchmark(path)
    assert found.queries == {"1": "sort list `x`", "2": "sort it"}
    assert found.codes == {"1": "sorted(x)", "2": "x.sort()"}
    assert found.grades == {"1": {"1": 1, "2": 1}, "2": {"2": 1}}
    assert found.notes[0] == "3 codes are 2 items: those of equal text are one"


def test_mined_pairs_count_whatever_their_probability_and_that_is_said(tmp_path: Path) -> None:
    mined = [
        {"parent_answer_post_id": 9, "prob": prob, "snippet": code, "intent": "sort", "id": code, "question_id": 1}
        for code, prob in (("a", 0.9), ("b", 0.01))
    ]
    found = open_benchmark(lines(tmp_path / "conala-mined.jsonl", mined))
    assert found.grades == {"1": {"1": 1, "2": 1}}
    assert found.notes[1:] == ("mined pairs count as relevant whatever their `prob`; filter the file first if not",)
    assert "CoNaLa" in found.notes[0]
    assert found.notes[0].endswith("ignored columns: 'parent_answer_post_id', 'id'")


def test_snippets_of_staqc_are_one_a_list_or_judged_by_people(tmp_path: Path) -> None:
    rows = [
        {"id": 0, "question_id": 5, "question": "sort", "snippet": "one"},
        {"id": 1, "question_id": 6, "question": "join", "snippet": ["two", "three"]},
        {"id": 2, "question_id": 7, "question": "read", "snippet": {"text": ["four", "five"], "is_sda": [True, False]}},
        {"id": 3, "question_id": 8, "question": "sort", "snippet": [{"text": "six", "is_sda": False}]},
    ]
    found = open_benchmark(lines(tmp_path / "staqc.jsonl", rows))
    assert found.queries == {"1": "sort", "2": "join", "3": "read"}
    assert found.codes == {"1": "one", "2": "two", "2.1": "three", "3": "four", "3.1": "five", "4": "six"}
    assert found.grades == {"1": {"1": 1, "4": 0}, "2": {"2": 1, "2.1": 1}, "3": {"3": 1, "3.1": 0}}


def test_staqc_is_read_from_parquet(tmp_path: Path) -> None:
    judged = [{"text": "one", "is_sda": True}, {"text": "two", "is_sda": False}]
    table = pyarrow.Table.from_pylist([{"id": 0, "question_id": 5, "question": "sort", "snippet": judged}])
    (tmp_path / "man_python").mkdir()
    pyarrow.parquet.write_table(table, tmp_path / "man_python/0000.parquet")
    for path in (tmp_path / "man_python/0000.parquet", tmp_path / "man_python"):
        assert open_benchmark(path).grades == {"1": {"1": 1, "1.1": 0}}


def test_pickles_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "python_qid_to_code.pickle").write_bytes(b"\x80\x04N.")
    with pytest.raises(InputError, match="the name ends in none of"):
        open_benchmark(tmp_path / "python_qid_to_code.pickle")


@pytest.mark.parametrize("snippet", [5, [5], {"text": ["a"]}, {"text": ["a"], "is_sda": []}, [{"text": "a"}]])
def test_a_snippet_of_another_form_is_refused(snippet: object, tmp_path: Path) -> None:
    path = lines(
        tmp_path / "staqc.jsonl",
        [{"question_id": n, "question": str(n), "snippet": each} for n, each in enumerate(("a", snippet))],
    )
    with pytest.raises(InputError, match=r"staqc.jsonl:2: 'snippet' is"):
        open_benchmark(path)


LABELLED = [
    {"pair_id": 1, "query": "sort", "code": "one", "docstring_tokens": "x", "label": 1},
    {"pair_id": 2, "query": "sort", "code": "two", "docstring_tokens": "x", "label": 0},
    {"pair_id": 3, "query": "join", "code": "one", "docstring_tokens": "x", "label": 0},
]


def table(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_label_1_of_labelled_pairs_is_relevant_and_label_0_is_judged(tmp_path: Path) -> None:
    found = open_benchmark(table(tmp_path / "pairs.csv", LABELLED))
    assert found.queries == {"1": "sort", "3": "join"}
    assert found.codes == {"1": "one", "2": "two"}
    assert found.grades == {"1": {"1": 1, "2": 0}, "3": {"1": 0}}
    assert "labelled pairs" in found.notes[1]
    assert found.notes[1].endswith("ignored columns: 'pair_id', 'docstring_tokens'")


@pytest.mark.parametrize("label", ["2", "-1", "", "maybe"])
def test_a_label_that_is_neither_1_nor_0_is_refused_with_its_line(label: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"pairs\.csv:3: .*'label'"):
        open_benchmark(table(tmp_path / "pairs.csv", [LABELLED[0], {**LABELLED[1], "label": label}]))


def test_a_table_of_questions_snippets_and_labels_is_not_read_as_staqc(tmp_path: Path) -> None:
    names = {"query": "question", "code": "snippet"}
    rows = [{names.get(name, name): value for name, value in row.items()} for row in LABELLED]
    with pytest.raises(InputError, match="no benchmark of a known form"):
        open_benchmark(table(tmp_path / "pairs.csv", rows))
    with pytest.raises(InputError, match="column label"):
        open_benchmark(table(tmp_path / "pairs.csv", [{"question_id": 1, **row} for row in rows]))


def test_codes_of_ones_own_are_refused(tmp_path: Path) -> None:
    path = lines(tmp_path / "conala.jsonl", CONALA)
    with pytest.raises(UsageError, match="brings its own codes"):
        open_benchmark(path, [path])
