"""A retrieval folder is of one benchmark, in one process's hands, and names only rankings that are whole."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.datasets.benchmark import Benchmark
from agent.errors import RunFolderError
from agent.evaluation.statistics import BootstrapSettings
from agent.retrieval.benchmark import open_benchmark
from agent.retrieval.folder import (
    RESULTS,
    BenchmarkSource,
    RankingRecord,
    RetrievalFolder,
    encode_file_name,
    is_retrieval_folder,
    open_for_writing,
    prepare_folder,
)
from agent.retrieval.scores import update_comparison, update_scores
from tests.retrieval.pooled import make_folder

SMALL = Benchmark(
    name="small",
    queries={"q1": "sort a list", "q 2": "read\ta file"},
    codes={"c1": "sorted(x)", "c/2": "open(x).read()", "ü": "pass"},
    grades={"q1": {"c1": 1, "ü": 0}, "q 2": {"c/2": 2}},
    notes=("1 duplicate became one code",),
)
DONE = RankingRecord(kind="searched", settings={"k1": 1.2}, seconds={"index": 0.5}, found=3, depth=3)
DEFAULTS: dict[str, Any] = {"source": BenchmarkSource(path="bench.json"), "code_view": "full", "depth": 1000}


def begin(path: Path, benchmark: Benchmark = SMALL, **other: Any) -> Any:
    return prepare_folder(path, benchmark, **{**DEFAULTS, **other})


def write(file: TextIO) -> RankingRecord:
    file.write("q1 Q0 c1 1 1.5 bm25\n")
    return DONE


def fill(path: Path) -> None:
    with begin(path) as folder:
        folder.add_ranking("bm25", write)


def test_a_folder_gives_back_what_it_was_begun_with(tmp_path: Path) -> None:
    with begin(tmp_path / "r", depth=10) as folder:
        assert folder.rankings == {}
    read = RetrievalFolder(tmp_path / "r")
    assert (read.read_queries(), read.read_grades()) == (dict(SMALL.queries), dict(SMALL.grades))
    assert (read.identity["depth"], read.identity["code_view"]) == (10, "full")
    assert read.about == {"name": "small", "language": "python", "notes": ["1 duplicate became one code"]}
    assert is_retrieval_folder(tmp_path / "r")


def test_a_ranking_is_there_once_it_was_entered(tmp_path: Path) -> None:
    fill(tmp_path / "r")
    folder = RetrievalFolder(tmp_path / "r")
    assert folder.rankings == {"bm25": DONE}
    assert folder.ranking_path("bm25").read_text() == "q1 Q0 c1 1 1.5 bm25\n"


def test_a_ranking_that_failed_leaves_nothing(tmp_path: Path) -> None:
    def fail(file: TextIO) -> RankingRecord:
        file.write("half")
        raise ZeroDivisionError

    with begin(tmp_path / "r") as folder, pytest.raises(ZeroDivisionError):
        folder.add_ranking("bm25", fail)
    assert list((tmp_path / "r" / "rankings").iterdir()) == []
    assert RetrievalFolder(tmp_path / "r").rankings == {}


def test_another_ranking_leaves_the_scores_and_marks_them_once_it_is_whole(tmp_path: Path) -> None:
    folder = RetrievalFolder(make_folder(tmp_path))
    update_scores(folder, settings=BootstrapSettings(resamples=100))
    update_comparison(folder)

    def states() -> list[bool]:
        return [json.loads((folder.path / name).read_text())["out_of_date"] for name in RESULTS]

    def check(file: TextIO) -> RankingRecord:
        assert states() == [False, False]
        assert set(RetrievalFolder(folder.path).rankings) == {"one", "two"}
        return write(file)

    assert list(folder.describe_out_of_date_results()) == []
    with open_for_writing(folder.path) as opened:
        opened.add_ranking("two", check)
    assert states() == [True, True]
    assert RetrievalFolder(folder.path).rankings["two"] == DONE
    assert [note.split()[0] for note in folder.describe_out_of_date_results()] == [
        str(folder.path / name) for name in RESULTS
    ]
    update_scores(folder, settings=BootstrapSettings(resamples=100))
    assert states() == [False, True]


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"benchmark": replace(SMALL, queries={"q1": "sort", "q 2": "read\ta file"})}, "benchmark.sha256"),
        ({"benchmark": replace(SMALL, codes={**SMALL.codes, "c3": "x"})}, "benchmark.codes: 3 in the folder, 4"),
        ({"benchmark": replace(SMALL, grades={"q1": {"c1": 0}})}, "benchmark.grades: 3 in the folder, 1 now"),
        ({"code_view": "body"}, "code_view: 'full' in the folder, 'body' now"),
        ({"depth": 5}, "depth: 1000 in the folder, 5 now"),
    ],
)
def test_another_benchmark_is_refused_and_the_difference_shown(
    tmp_path: Path, other: dict[str, Any], named: str
) -> None:
    fill(tmp_path / "r")
    with pytest.raises(RunFolderError, match="Choose another folder") as refused, begin(tmp_path / "r", **other):
        pass
    assert named in str(refused.value)
    assert RetrievalFolder(tmp_path / "r").rankings == {"bm25": DONE}


def test_grades_in_another_order_are_the_same_benchmark(tmp_path: Path) -> None:
    fill(tmp_path / "r")
    turned = {query: dict(reversed(grades.items())) for query, grades in SMALL.grades.items()}
    with begin(tmp_path / "r", replace(SMALL, grades=turned)) as folder:
        assert set(folder.rankings) == {"bm25"}


def test_another_process_is_refused_while_one_writes(tmp_path: Path) -> None:
    fill(tmp_path / "r")
    script = (
        "import pathlib, sys, agent.retrieval.folder as f\nwith f.open_for_writing(pathlib.Path(sys.argv[1])): pass"
    )
    with open_for_writing(tmp_path / "r"):
        ended = subprocess.run([sys.executable, "-c", script, tmp_path / "r"], capture_output=True, text=True)
    assert "is in use by process" in ended.stderr
    assert subprocess.run([sys.executable, "-c", script, tmp_path / "r"]).returncode == 0


def test_drafts_of_killed_writers_are_removed(tmp_path: Path) -> None:
    fill(tmp_path / "r")
    draft = tmp_path / "r" / "rankings" / ".bm25.trec.0123456789abcdef.tmp"
    draft.write_text("half")
    with begin(tmp_path / "r"):
        assert not draft.exists()


def test_what_was_killed_while_it_was_made_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "rankings").mkdir()
    (tmp_path / "queries.jsonl").write_text("{")
    with begin(tmp_path) as folder:
        assert folder.read_queries() == dict(SMALL.queries)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(RunFolderError, match=r"is no retrieval folder \(it holds 'thesis.tex'\)"), begin(tmp_path):
        pass
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(RunFolderError, match="is no retrieval folder; make one by: agent retrieval run"):
            RetrievalFolder(path)


def test_a_run_is_told_where_its_rankings_are(tmp_path: Path) -> None:
    fill(tmp_path / "retrieval")
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(RunFolderError, match=f"is no retrieval folder; give {tmp_path / 'retrieval'}"):
        RetrievalFolder(tmp_path)


def test_a_ranking_whose_file_was_removed_is_left_out_until_it_is_made_again(tmp_path: Path) -> None:
    fill(tmp_path / "r")
    RetrievalFolder(tmp_path / "r").ranking_path("bm25").unlink()
    assert RetrievalFolder(tmp_path / "r").rankings == {}
    fill(tmp_path / "r")
    assert RetrievalFolder(tmp_path / "r").rankings == {"bm25": DONE}


def test_the_benchmark_is_opened_again_also_where_both_were_moved(tmp_path: Path) -> None:
    small = tmp_path / "a"
    small.mkdir()
    (small / "queries.json").write_text('{"query-idx": 1, "query": "sort", "code-idx": 7, "label": 1}\n')
    (small / "codes.jsonl").write_text('{"code-idx": 7, "code": "sorted(x)"}\n')
    source = BenchmarkSource(path=str(small / "queries.json"), codes=[str(small / "codes.jsonl")])
    benchmark = open_benchmark(source.path, source.codes)
    with begin(small / "r", benchmark, source=source):
        pass
    small.rename(tmp_path / "b")
    assert RetrievalFolder(tmp_path / "b" / "r").reopen_benchmark() == benchmark
    (tmp_path / "link").symlink_to(tmp_path / "b" / "r")
    assert RetrievalFolder(tmp_path / "link").reopen_benchmark() == benchmark
    (tmp_path / "b" / "codes.jsonl").write_text('{"code-idx": 7, "code": "sort(x)"}\n')
    with pytest.raises(RunFolderError, match=r"benchmark\.sha256"):
        RetrievalFolder(tmp_path / "b" / "r").reopen_benchmark()


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("manifest.json", "{}", "is not what `agent retrieval` writes"),
        ("queries.jsonl", '{"_id": "1"}\n', r"queries.jsonl:1: is not an object with _id and text"),
        ("qrels.tsv", "query-id\tcorpus-id\tscore\nq1 c1 1\n", r"qrels.tsv:2: is not query, code and grade"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, file: str, content: str, said: str) -> None:
    fill(tmp_path / "r")
    (tmp_path / "r" / file).write_text(content)
    with pytest.raises(RunFolderError, match=said):
        _ = [
            read()
            for read in (RetrievalFolder(tmp_path / "r").read_queries, RetrievalFolder(tmp_path / "r").read_grades)
        ]


@given(st.lists(st.text(max_size=300), unique=True))
def test_names_of_searchers_are_no_paths(names: list[str]) -> None:
    found = {encode_file_name(name) for name in names}
    assert len(found) == len(names)
    for each in found:
        assert "/" not in each
        assert "\0" not in each
        assert len(f".{each}.trec") <= 255


@settings(max_examples=20)
@given(
    st.dictionaries(st.text(), st.dictionaries(st.text(), st.integers(0, 9), min_size=1), min_size=1, max_size=3),
)
def test_grades_come_back_whatever_the_ids(
    tmp_path_factory: pytest.TempPathFactory, grades: dict[str, dict[str, int]]
) -> None:
    benchmark = replace(SMALL, grades=grades, queries=dict.fromkeys(grades, "\ud800"))
    with begin(tmp_path_factory.mktemp("r"), benchmark) as folder:
        assert (folder.read_grades(), folder.read_queries()) == (grades, dict(benchmark.queries))
