"""Tables of pairs as benchmarks: CoNaLa, StaQC and labelled pairs. Labels are read or rejected, never ignored."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from agent.errors import InputError, UsageError
from agent.retrieval.benchmark import open_benchmark
from tests.evaluation.runs import write_lines

CONALA = [
    {"intent": "sort it", "rewritten_intent": "sort list `x`", "snippet": "sorted(x)", "question_id": 1},
    {"intent": "sort it", "rewritten_intent": None, "snippet": "x.sort()", "question_id": 1},
    {"intent": "order", "rewritten_intent": "sort list `x`", "snippet": "x.sort()", "question_id": 2},
]


def test_the_query_of_conala_is_the_rewritten_intent_if_present(tmp_path: Path) -> None:
    path = tmp_path / "conala-train.json"
    path.write_text(json.dumps(CONALA))
    benchmark = open_benchmark(path)
    assert benchmark.queries == {"1": "sort list `x`", "2": "sort it"}
    assert benchmark.codes == {"1": "sorted(x)", "2": "x.sort()"}
    assert benchmark.grades == {"1": {"1": 1, "2": 1}, "2": {"2": 1}}
    assert re.findall(r"\d+", benchmark.notes[0]) == ["3", "2"]


def test_mined_pairs_count_regardless_of_prob_with_a_note(tmp_path: Path) -> None:
    mined = [
        {"parent_answer_post_id": 9, "prob": prob, "snippet": code, "intent": "sort", "id": code, "question_id": 1}
        for code, prob in (("a", 0.9), ("b", 0.01))
    ]
    benchmark = open_benchmark(write_lines(tmp_path / "conala-mined.jsonl", mined))
    assert benchmark.grades == {"1": {"1": 1, "2": 1}}
    assert ["`prob`" in note for note in benchmark.notes[1:]] == [True]
    assert "CoNaLa" in benchmark.notes[0]
    assert benchmark.notes[0].endswith(": 'parent_answer_post_id', 'id'")


def test_a_staqc_snippet_may_be_text_a_list_or_labelled(tmp_path: Path) -> None:
    rows = [
        {"id": 0, "question_id": 5, "question": "sort", "snippet": "one"},
        {"id": 1, "question_id": 6, "question": "join", "snippet": ["two", "three"]},
        {"id": 2, "question_id": 7, "question": "read", "snippet": {"text": ["four", "five"], "is_sda": [True, False]}},
        {"id": 3, "question_id": 8, "question": "sort", "snippet": [{"text": "six", "is_sda": False}]},
    ]
    benchmark = open_benchmark(write_lines(tmp_path / "staqc.jsonl", rows))
    assert benchmark.queries == {"1": "sort", "2": "join", "3": "read"}
    assert benchmark.codes == {"1": "one", "2": "two", "2.1": "three", "3": "four", "3.1": "five", "4": "six"}
    assert benchmark.grades == {"1": {"1": 1, "4": 0}, "2": {"2": 1, "2.1": 1}, "3": {"3": 1, "3.1": 0}}


def test_staqc_is_read_from_parquet(tmp_path: Path) -> None:
    snippet = [{"text": "one", "is_sda": True}, {"text": "two", "is_sda": False}]
    table = pyarrow.Table.from_pylist([{"id": 0, "question_id": 5, "question": "sort", "snippet": snippet}])
    (tmp_path / "man_python").mkdir()
    pyarrow.parquet.write_table(table, tmp_path / "man_python/0000.parquet")
    for path in (tmp_path / "man_python/0000.parquet", tmp_path / "man_python"):
        assert open_benchmark(path).grades == {"1": {"1": 1, "1.1": 0}}


def test_pickles_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "python_qid_to_code.pickle").write_bytes(b"\x80\x04N.")
    with pytest.raises(InputError, match=r"\.jsonl"):
        open_benchmark(tmp_path / "python_qid_to_code.pickle")


@pytest.mark.parametrize("snippet", [5, [5], {"text": ["a"]}, {"text": ["a"], "is_sda": []}, [{"text": "a"}]])
def test_an_error_locates_a_malformed_snippet(snippet: object, tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "staqc.jsonl",
        [{"question_id": n, "question": str(n), "snippet": value} for n, value in enumerate(("a", snippet))],
    )
    with pytest.raises(InputError, match=r"staqc.jsonl:2: 'snippet'"):
        open_benchmark(path)


LABELLED = [
    {"pair_id": 1, "query": "sort", "code": "one", "docstring_tokens": "x", "label": 1},
    {"pair_id": 2, "query": "sort", "code": "two", "docstring_tokens": "x", "label": 0},
    {"pair_id": 3, "query": "join", "code": "one", "docstring_tokens": "x", "label": 0},
]


def write_csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_label_1_is_relevant_and_label_0_is_judged_not_relevant(tmp_path: Path) -> None:
    benchmark = open_benchmark(write_csv(tmp_path / "pairs.csv", LABELLED))
    assert benchmark.queries == {"1": "sort", "3": "join"}
    assert benchmark.codes == {"1": "one", "2": "two"}
    assert benchmark.grades == {"1": {"1": 1, "2": 0}, "3": {"1": 0}}
    assert "read as pairs" in benchmark.notes[1]
    assert benchmark.notes[1].endswith(": 'pair_id', 'docstring_tokens'")


@pytest.mark.parametrize("blank", ["", " ", None])
def test_a_pair_with_a_blank_label_is_unjudged_and_counted(blank: str | None, tmp_path: Path) -> None:
    rows = [LABELLED[0], *({**row, "label": blank} for row in LABELLED[1:])]
    for path in (write_csv(tmp_path / "pairs.csv", rows), write_lines(tmp_path / "pairs.jsonl", rows)):
        benchmark = open_benchmark(path)
        assert (list(benchmark.queries), list(benchmark.codes)) == (["1", "3"], ["1", "2"])
        assert benchmark.grades == {"1": {"1": 1}}
        assert re.findall(r"\d+", benchmark.notes[-1]) == ["2"]


def test_candidates_are_pairs_without_judgements(tmp_path: Path) -> None:
    rows = [
        {"id": f"q{n}/c1", "query": f"sort {n}", "code": "one", "language": "python", "meta": {"query_id": f"q{n}"}}
        for n in range(3)
    ]
    benchmark = open_benchmark(write_lines(tmp_path / "candidates.jsonl", rows))
    assert benchmark.queries == {"1": "sort 0", "2": "sort 1", "3": "sort 2"}
    assert (benchmark.codes, benchmark.grades) == ({"1": "one"}, {})
    assert "read as pairs" in benchmark.notes[1]
    assert benchmark.notes[1].endswith(": 'id', 'language', 'meta'")
    assert re.findall(r"\d+", benchmark.notes[2]) == ["3"]
    assert "agent retrieval judge" in benchmark.notes[3]


def test_a_table_of_questions_snippets_and_labels_is_not_staqc(tmp_path: Path) -> None:
    names = {"query": "question", "code": "snippet"}
    rows = [{names.get(name, name): value for name, value in row.items()} for row in LABELLED]
    with pytest.raises(InputError, match="'snippet'"):
        open_benchmark(write_csv(tmp_path / "pairs.csv", rows))
    with pytest.raises(InputError, match="label"):
        open_benchmark(write_csv(tmp_path / "pairs.csv", [{"question_id": 1, **row} for row in rows]))


def test_snippets_are_rejected_for_a_benchmark_that_includes_them(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "conala.jsonl", CONALA)
    with pytest.raises(UsageError, match="--codes"):
        open_benchmark(path, [path])


GENERATED = [
    {"query": "sort", "code": "real", "label": 1, "source": "web"},
    {"query": "sort", "code": "nested", "label": 1, "meta": {"source": "generated", "reviewed": False}},
    {"query": "join", "code": "flat", "label": 1, "source": "generated", "reviewed": "False"},
    {"query": "read", "code": "reviewed", "label": 1, "meta": {"source": "generated", "reviewed": True}},
    {"query": "read", "code": "exported", "label": 1, "source": "generated", "reviewed": "true"},
]


def test_generated_code_in_a_table_must_be_reviewed_or_requested(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "pairs.jsonl", GENERATED)
    benchmark = open_benchmark(path)
    assert list(benchmark.queries.values()) == ["sort", "read"]
    assert list(benchmark.codes.values()) == ["real", "reviewed", "exported"]
    assert sum("2 pairs" in note and "--with-generated" in note for note in benchmark.notes) == 1
    assert len(open_benchmark(path, with_generated=True).codes) == len(GENERATED)
    with pytest.raises(InputError, match="--with-generated"):
        open_benchmark(write_lines(tmp_path / "only.jsonl", GENERATED[1:3]))


def test_generated_code_in_other_parts_of_a_split_is_left_out_too(tmp_path: Path) -> None:
    (tmp_path / "split.json").write_text("{}")
    write_lines(tmp_path / "test.jsonl", GENERATED[:1])
    write_lines(tmp_path / "train.jsonl", GENERATED[1:])
    assert list(open_benchmark(tmp_path).codes.values()) == ["real", "reviewed", "exported"]
    assert len(open_benchmark(tmp_path, with_generated=True).codes) == len(GENERATED)


def test_fields_of_cosqa_and_mapped_fields_are_read_as_by_other_commands(tmp_path: Path) -> None:
    cosqa = [{"idx": f"cosqa-{n}", "doc": "sort", "code": f"c{n}", "label": n} for n in (0, 1)]
    named = [{"key": row["idx"], "title": row["doc"], "body": row["code"], "gold": row["label"]} for row in cosqa]
    mapping = "id=key,query=title,code=body,label=gold"
    paths = (write_lines(tmp_path / "cosqa.jsonl", cosqa), write_lines(tmp_path / "named.jsonl", named))
    for path, fields in zip(paths, (None, mapping), strict=True):
        benchmark = open_benchmark(path, mapping=fields)
        assert (benchmark.queries, benchmark.grades) == ({"1": "sort"}, {"1": {"1": 0, "2": 1}})
        benchmark = open_benchmark(path, mapping=fields, own_ids=True)
        assert benchmark.grades == {"cosqa-0": {"cosqa-0": 0, "cosqa-1": 1}}
    repeated = write_lines(tmp_path / "repeated.jsonl", [{**row, "idx": "a"} for row in cosqa])
    assert open_benchmark(repeated, own_ids=True).grades == {"a": {"a": 0, "a/2": 1}}
    with pytest.raises(InputError, match="'rating'"):
        open_benchmark(paths[0], mapping="label=rating")


def test_a_mapping_makes_a_table_of_pairs_of_another_format(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "pairs.csv", [{"question_id": 1, "question": "a", "snippet": "b", "label": "no"}])
    assert open_benchmark(path, mapping="query=question,code=snippet").grades == {"1": {"1": 0}}
    conala = write_lines(tmp_path / "conala.jsonl", CONALA)
    assert "--map" in " ".join(open_benchmark(conala, mapping={"context": "question_id"}).notes)
