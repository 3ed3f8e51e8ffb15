"""Unjudged results are pooled once, each judgement has its judge, and labels of the benchmark never change."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.datasets.groups import EquivalenceGroup, GroupMember, SampleCall
from agent.datasets.reading import read_pairs
from agent.errors import RunFolderError, UsageError
from agent.evaluation.statistics import BootstrapSettings
from agent.retrieval.folder import RetrievalFolder, open_for_writing
from agent.retrieval.judging import (
    AnnotatorJudgements,
    collect_pool,
    merge_grades,
    propose_pairs,
    rank_top_codes,
    read_labels,
    write_judgements,
)
from agent.retrieval.scores import update_scores
from tests.retrieval.pooled import CODES, JUDGED, QUERIES, RANKINGS, add_rankings, make_folder

GRADES = st.dictionaries(
    st.sampled_from("qrs"), st.dictionaries(st.sampled_from("abcde"), st.integers(0, 3), max_size=4), max_size=3
)


def write_pool(path: Path, depth: int = 2) -> tuple[int, int]:
    with open_for_writing(path) as folder:
        pool = collect_pool(folder, folder.reopen_benchmark(), depth)
        pool.write(path / "pool.jsonl")
        return pool.pairs, len(pool.new)


def read_pool(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "pool.jsonl").read_text().splitlines()]


def make_judgements(**counts: int) -> AnnotatorJudgements:
    grades: dict[str, dict[str, int]] = {}
    for (query, code), label in JUDGED.items():
        grades.setdefault(query, {})[code] = label
    return AnnotatorJudgements("full/some-model", grades, **counts)


def test_snippets_that_tie_with_the_last_one_are_included_at_their_best_rank() -> None:
    scores = {"a": 1.0, "b": 3.0, "c": 2.0, "d": 2.0, "e": 2.0}
    assert rank_top_codes(scores, 2) == {"b": 1, "c": 2, "d": 2, "e": 2}
    assert rank_top_codes(scores, 1) == {"b": 1}
    assert rank_top_codes({}, 3) == {}


@given(st.dictionaries(st.text(max_size=2), st.sampled_from([0.0, 0.1, 0.5, 2.0]), max_size=12), st.integers(1, 12))
def test_a_snippet_is_included_if_fewer_than_depth_snippets_are_better(scores: dict[str, float], depth: int) -> None:
    better = {code: sum(other > score for other in scores.values()) for code, score in scores.items()}
    assert rank_top_codes(scores, depth) == {code: count + 1 for code, count in better.items() if count < depth}


def test_the_pool_contains_each_pair_once_in_the_input_format(tmp_path: Path) -> None:
    path = make_folder(tmp_path)
    assert write_pool(path) == (4, 4)
    pairs = read_pairs(path / "pool.jsonl")
    assert [(pair.meta["query_id"], pair.meta["code_id"]) for pair in pairs] == list(JUDGED)
    assert [(pair.query, pair.code) for pair in pairs] == [(QUERIES[q][0], CODES[c]) for q, c in JUDGED]
    assert pairs[0].id == "q1/c3"
    found_by = [pair.meta["found_by"] for pair in pairs]
    assert found_by == [{"one": 1, "two": 1}, {"two": 1}, {"two": 1}, {"one": 2, "two": 1}]


def test_pooling_again_only_adds_new_pairs(tmp_path: Path) -> None:
    path = make_folder(tmp_path, {"one": RANKINGS["one"]})
    assert write_pool(path) == (2, 2)
    first = read_pool(path)
    assert write_pool(path, depth=5) == (3, 1)
    add_rankings(path, {"two": RANKINGS["two"]})
    assert write_pool(path) == (4, 1)
    assert read_pool(path)[:2] == first
    assert [line["id"] for line in read_pool(path)] == ["q1/c3", "q3/c3", "q1/c4", "q2/c3"]
    assert write_pool(path, depth=1) == (4, 0)


def test_a_modified_pool_raises_an_error_with_the_pair_id(tmp_path: Path) -> None:
    path = make_folder(tmp_path)
    write_pool(path)
    changed = (path / "pool.jsonl").read_text().replace("return sum", "return max", 1)
    (path / "pool.jsonl").write_text(changed)
    with pytest.raises(RunFolderError, match=r"pool\.jsonl.*'q1/c3'"):
        write_pool(path)
    assert (path / "pool.jsonl").read_text() == changed


def make_group(*ids: str) -> EquivalenceGroup:
    members = [GroupMember(id=id, code=CODES[id], informative=3, mutants=4, told_apart=4) for id in ids]
    calls = (SampleCall(input="1, 2", output="3"),)
    return EquivalenceGroup(id="g1", members=tuple(members), inputs=9, informative=3, outputs=3, evidence=calls)


def propose(path: Path) -> Path:
    """Write the pairs for which c1 and c3, or c4 and c5, are equivalent."""
    benchmark = RetrievalFolder(path).reopen_benchmark()
    lines = propose_pairs(benchmark, [make_group("c1", "c3"), make_group("c4", "c5")])
    file = path.parent / "proposed.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_equivalents_of_relevant_snippets_are_added_to_the_pool(tmp_path: Path) -> None:
    path = make_folder(tmp_path, {"one": RANKINGS["one"]})
    proposed = propose(path)
    assert [pair.id for pair in read_pairs(proposed)] == ["q1/c3"], "c5 is not relevant"
    with open_for_writing(path) as folder:
        pool = collect_pool(folder, folder.reopen_benchmark(), 1, proposed)
        pool.write(path / "pool.jsonl")
        assert collect_pool(folder, folder.reopen_benchmark(), 1, proposed).new == []
        proposed.write_text(proposed.read_text().replace("add numbers", "other"))
        with pytest.raises(UsageError, match=r"proposed\.jsonl.*'q1/c3'"):
            collect_pool(folder, folder.reopen_benchmark(), 1, proposed)
    [line] = read_pool(path)
    assert line["meta"]["found_by"] == {"one": 1}
    record = {"of": "c1", "group": "g1", "evidence": [{"input": "1, 2", "output": "3"}]}
    assert (line["code"], line["meta"]["equivalent"]) == (CODES["c3"], record)


@given(GRADES, GRADES)
def test_added_judgements_never_change_a_grade(
    qrels: dict[str, dict[str, int]], added: dict[str, dict[str, int]]
) -> None:
    merged = merge_grades(qrels, added)
    assert {q: {c: merged[q][c] for c in grades} for q, grades in qrels.items()} == qrels
    merged_keys = {(q, c) for q, grades in merged.items() for c in grades}
    assert merged_keys == {(q, c) for source in (qrels, added) for q, grades in source.items() for c in grades}
    assert merge_grades(merged, added) == merged


def test_files_name_the_judge_of_each_judgement(tmp_path: Path) -> None:
    path = make_folder(tmp_path)
    with open_for_writing(path) as folder:
        qrels = (path / "qrels.tsv").read_text()
        # a judgement that contradicts the benchmark's label of q1 and c1 is ignored
        annotator = make_judgements()
        write_judgements(
            folder,
            AnnotatorJudgements(annotator.judge, merge_grades(annotator.grades, {"q1": {"c1": 0}}), {("q1", "c3")}),
        )
    assert (path / "qrels.tsv").read_text() == qrels
    table = [line.split("\t") for line in (path / "judgements.tsv").read_text().splitlines()]
    assert table[0] == ["query-id", "corpus-id", "score", "judge"]
    assert {(q, c): (grade, judge) for q, c, grade, judge in table[1:]} == {
        ("q1", "c1"): ("1", "benchmark"),
        ("q2", "c2"): ("1", "benchmark"),
        ("q3", "c5"): ("0", "benchmark"),
        **{key: (str(label), "full/some-model") for key, label in JUDGED.items()},
        ("q1", "c3"): ("1", "review"),
    }
    qrels = [line.split() for line in (path / "judgements.qrels").read_text().splitlines()]
    assert {(q, c): grade for q, _, c, grade in qrels} == {(q, c): grade for q, c, grade, _ in table[1:]}
    assert {zero for _, zero, _, _ in qrels} == {"0"}


def test_labels_come_from_all_judges_or_only_from_the_benchmark(tmp_path: Path) -> None:
    path = make_folder(tmp_path)
    before = read_labels(RetrievalFolder(path))
    assert before == ("labels", RetrievalFolder(path).read_grades(), list(QUERIES), (), 0)
    with open_for_writing(path) as folder:
        write_judgements(folder, make_judgements())
    after = read_labels(RetrievalFolder(path))
    assert after.grades == {"q1": {"c1": 1, "c3": 1, "c4": 0}, "q2": {"c2": 1, "c3": 0}, "q3": {"c5": 0, "c3": 1}}
    assert [re.findall(r"\b\d\b", note) for note in after.notes] == [["3", "4"]]
    assert read_labels(RetrievalFolder(path), "benchmark") == before._replace(judge="benchmark")


def test_changed_judgements_mark_scores_as_out_of_date(tmp_path: Path) -> None:
    path = make_folder(tmp_path)
    for changes in (True, False):
        with open_for_writing(path) as folder:
            update_scores(folder, settings=BootstrapSettings(resamples=100))
            write_judgements(folder, make_judgements())
        assert json.loads((path / "scores.json").read_text())["out_of_date"] is changes


def test_pool_pairs_without_a_judgement_are_counted(tmp_path: Path) -> None:
    path = make_folder(tmp_path)
    write_pool(path)
    with open_for_writing(path) as folder:
        assert read_labels(folder).missing == 4
        write_judgements(folder, AnnotatorJudgements("full/some-model", {"q1": {"c3": 1}}))
        assert update_scores(folder, settings=BootstrapSettings(resamples=100)).missing_judgements == 3
        write_judgements(folder, make_judgements())
        assert read_labels(folder).missing == 0


def test_a_damaged_judgements_file_raises_an_error_with_the_line(tmp_path: Path) -> None:
    path = make_folder(tmp_path)
    (path / "judgements.tsv").write_text("query-id\tcorpus-id\tscore\tjudge\nq1\tc1\tone\tbenchmark\n")
    with pytest.raises(RunFolderError, match=r"judgements\.tsv:2:"):
        read_labels(RetrievalFolder(path))


def test_blank_snippets_are_not_pooled(tmp_path: Path) -> None:
    with open_for_writing(make_folder(tmp_path)) as folder:
        benchmark = folder.reopen_benchmark()
        blank = replace(benchmark, codes={**benchmark.codes, "c3": " \n"})
        assert collect_pool(folder, blank, 2).pairs == 1
