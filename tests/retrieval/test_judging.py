"""Unjudged results are pooled once; whose each judgement is stays known; no label of the benchmark changes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.datasets import read_pairs
from agent.errors import RunFolderError
from agent.evaluation.statistics import BootstrapSettings
from agent.retrieval.folder import RetrievalFolder, open_for_writing
from agent.retrieval.judging import (
    AnnotatorJudgements,
    collect_pool,
    merge_grades,
    rank_top_codes,
    read_labels,
    write_judgements,
)
from agent.retrieval.scores import update_scores
from tests.retrieval.pooled import CODES, JUDGED, QUERIES, RANKINGS, add_rankings, make_folder

GRADES = st.dictionaries(
    st.sampled_from("qrs"), st.dictionaries(st.sampled_from("abcde"), st.integers(0, 3), max_size=4), max_size=3
)


def pool(path: Path, depth: int = 2) -> tuple[int, int]:
    with open_for_writing(path) as folder:
        collected = collect_pool(folder, folder.reopen_benchmark(), depth)
        collected.write(path / "pool.jsonl")
        return collected.pairs, len(collected.new)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "pool.jsonl").read_text().splitlines()]


def by_annotator(**more: int) -> AnnotatorJudgements:
    grades: dict[str, dict[str, int]] = {}
    for (query, code), label in JUDGED.items():
        grades.setdefault(query, {})[code] = label
    return AnnotatorJudgements("full/some-model", grades, **more)


def test_all_that_tie_with_the_last_of_the_depth_are_in_it_at_their_best_rank() -> None:
    found = {"a": 1.0, "b": 3.0, "c": 2.0, "d": 2.0, "e": 2.0}
    assert rank_top_codes(found, 2) == {"b": 1, "c": 2, "d": 2, "e": 2}
    assert rank_top_codes(found, 1) == {"b": 1}
    assert rank_top_codes({}, 3) == {}


@given(st.dictionaries(st.text(max_size=2), st.sampled_from([0.0, 0.1, 0.5, 2.0]), max_size=12), st.integers(1, 12))
def test_a_code_is_in_the_depth_when_fewer_than_that_are_better(found: dict[str, float], depth: int) -> None:
    better = {code: sum(other > score for other in found.values()) for code, score in found.items()}
    assert rank_top_codes(found, depth) == {code: count + 1 for code, count in better.items() if count < depth}


def test_the_pool_has_each_pair_once_as_annotate_takes_them(tmp_path: Path) -> None:
    path = make_folder(tmp_path)
    assert pool(path) == (4, 4)
    pairs = read_pairs(path / "pool.jsonl")
    assert [(pair.meta["query_id"], pair.meta["code_id"]) for pair in pairs] == list(JUDGED)
    assert [(pair.query, pair.code) for pair in pairs] == [(QUERIES[q][0], CODES[c]) for q, c in JUDGED]
    assert pairs[0].id == "q1/c3"
    found_by = [pair.meta["found_by"] for pair in pairs]
    assert found_by == [{"one": 1, "two": 1}, {"two": 1}, {"two": 1}, {"one": 2, "two": 1}]


def test_pooling_again_adds_what_is_new_and_leaves_the_rest(tmp_path: Path) -> None:
    path = make_folder(tmp_path, {"one": RANKINGS["one"]})
    assert pool(path) == (2, 2)
    first = lines(path)
    assert pool(path, depth=5) == (3, 1)
    add_rankings(path, {"two": RANKINGS["two"]})
    assert pool(path) == (4, 1)
    assert lines(path)[:2] == first
    assert [line["id"] for line in lines(path)] == ["q1/c3", "q3/c3", "q1/c4", "q2/c3"]
    assert pool(path, depth=1) == (4, 0)


def test_a_pool_that_was_changed_is_refused_with_its_line(tmp_path: Path) -> None:
    path = make_folder(tmp_path)
    pool(path)
    changed = (path / "pool.jsonl").read_text().replace("return sum", "return max", 1)
    (path / "pool.jsonl").write_text(changed)
    with pytest.raises(RunFolderError, match=r"the pair 'q1/c3' is not of this benchmark"):
        pool(path)
    assert (path / "pool.jsonl").read_text() == changed


@given(GRADES, GRADES)
def test_added_judgements_never_change_a_grade(
    own: dict[str, dict[str, int]], added: dict[str, dict[str, int]]
) -> None:
    both = merge_grades(own, added)
    assert {q: {c: both[q][c] for c in grades} for q, grades in own.items()} == own
    kept = {(q, c) for q, grades in both.items() for c in grades}
    assert kept == {(q, c) for each in (own, added) for q, grades in each.items() for c in grades}
    assert merge_grades(both, added) == both


def test_files_say_whose_each_judgement_is(tmp_path: Path) -> None:
    path = make_folder(tmp_path)
    with open_for_writing(path) as folder:
        own = (path / "qrels.tsv").read_text()
        # one that contradicts the benchmark's label of q1 and c1 is not used
        annotator = by_annotator()
        write_judgements(
            folder, AnnotatorJudgements(annotator.judge, merge_grades(annotator.grades, {"q1": {"c1": 0}}))
        )
    assert (path / "qrels.tsv").read_text() == own
    table = [line.split("\t") for line in (path / "judgements.tsv").read_text().splitlines()]
    assert table[0] == ["query-id", "corpus-id", "score", "judge"]
    assert {(q, c): (grade, judge) for q, c, grade, judge in table[1:]} == {
        ("q1", "c1"): ("1", "benchmark"),
        ("q2", "c2"): ("1", "benchmark"),
        ("q3", "c5"): ("0", "benchmark"),
        **{key: (str(label), "full/some-model") for key, label in JUDGED.items()},
    }
    qrels = [line.split() for line in (path / "judgements.qrels").read_text().splitlines()]
    assert {(q, c): grade for q, _, c, grade in qrels} == {(q, c): grade for q, c, grade, _ in table[1:]}
    assert {zero for _, zero, _, _ in qrels} == {"0"}


def test_labels_are_everybodys_or_the_benchmarks_alone(tmp_path: Path) -> None:
    path = make_folder(tmp_path)
    before = read_labels(RetrievalFolder(path))
    assert before == ("labels", RetrievalFolder(path).read_grades(), list(QUERIES), (), 0)
    with open_for_writing(path) as folder:
        write_judgements(folder, by_annotator())
    after = read_labels(RetrievalFolder(path))
    assert after.grades == {"q1": {"c1": 1, "c3": 1, "c4": 0}, "q2": {"c2": 1, "c3": 0}, "q3": {"c5": 0, "c3": 1}}
    assert after.notes == ("labels: 3 of the benchmark, 4 of full/some-model",)
    assert read_labels(RetrievalFolder(path), "benchmark") == before._replace(judge="benchmark")


def test_judgements_that_change_mark_scores_as_out_of_date(tmp_path: Path) -> None:
    path = make_folder(tmp_path)
    for changes in (True, False):
        with open_for_writing(path) as folder:
            update_scores(folder, settings=BootstrapSettings(resamples=100))
            write_judgements(folder, by_annotator())
        assert json.loads((path / "scores.json").read_text())["out_of_date"] is changes


def test_pairs_of_the_pool_without_a_judgement_are_counted(tmp_path: Path) -> None:
    path = make_folder(tmp_path)
    pool(path)
    with open_for_writing(path) as folder:
        assert read_labels(folder).missing == 4
        write_judgements(folder, AnnotatorJudgements("full/some-model", {"q1": {"c3": 1}}))
        assert update_scores(folder, settings=BootstrapSettings(resamples=100)).missing_judgements == 3
        write_judgements(folder, by_annotator())
        assert read_labels(folder).missing == 0


def test_a_damaged_file_of_judgements_is_named(tmp_path: Path) -> None:
    path = make_folder(tmp_path)
    (path / "judgements.tsv").write_text("query-id\tcorpus-id\tscore\tjudge\nq1\tc1\tone\tbenchmark\n")
    with pytest.raises(RunFolderError, match=r"judgements\.tsv:2: is not query, code, grade and judge"):
        read_labels(RetrievalFolder(path))


def test_codes_without_text_are_not_pooled(tmp_path: Path) -> None:
    with open_for_writing(make_folder(tmp_path)) as folder:
        benchmark = folder.reopen_benchmark()
        blank = replace(benchmark, codes={**benchmark.codes, "c3": " \n"})
        assert collect_pool(folder, blank, 2).pairs == 1
