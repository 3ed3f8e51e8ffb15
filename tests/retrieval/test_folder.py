"""A retrieval folder belongs to one benchmark, has one writer, and lists only complete rankings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.corpus.audit import audit_benchmark
from agent.datasets.benchmark import Benchmark
from agent.errors import RunFolderError
from agent.evaluation.statistics import BootstrapSettings
from agent.retrieval.benchmark import open_benchmark
from agent.retrieval.folder import (
    AUDIT,
    LABEL_RESULTS,
    BenchmarkSource,
    RankingRecord,
    RetrievalFolder,
    encode_file_name,
    is_retrieval_folder,
    open_for_writing,
    prepare_folder,
)
from agent.retrieval.scores import update_comparison, update_scores
from agent.runs.store.files import write_document
from tests.retrieval.pooled import make_folder

SMALL = Benchmark(
    name="small",
    queries={"q1": "sort a list", "q 2": "read\ta file"},
    codes={"c1": "sorted(x)", "c/2": "open(x).read()", "ü": "pass"},
    grades={"q1": {"c1": 1, "ü": 0}, "q 2": {"c/2": 2}},
    notes=("1 duplicate became one snippet",),
)
RECORD = RankingRecord(kind="searched", settings={"k1": 1.2}, seconds={"index": 0.5}, found=3, depth=3)
DEFAULTS: dict[str, Any] = {"source": BenchmarkSource(path="bench.json"), "code_view": "full", "depth": 1000}


def prepare(path: Path, benchmark: Benchmark = SMALL, **changes: Any) -> Any:
    return prepare_folder(path, benchmark, **{**DEFAULTS, **changes})


def write(file: TextIO) -> RankingRecord:
    file.write("q1 Q0 c1 1 1.5 bm25\n")
    return RECORD


def add_bm25(path: Path) -> None:
    with prepare(path) as folder:
        folder.add_ranking("bm25", write)


def test_a_folder_returns_its_benchmark_and_options(tmp_path: Path) -> None:
    with prepare(tmp_path / "r", depth=10) as folder:
        assert folder.rankings == {}
    folder = RetrievalFolder(tmp_path / "r")
    assert (folder.read_queries(), folder.read_grades()) == (dict(SMALL.queries), dict(SMALL.grades))
    assert (folder.identity["depth"], folder.identity["code_view"]) == (10, "full")
    assert folder.about == {"name": "small", "language": "python", "notes": ["1 duplicate became one snippet"]}
    assert is_retrieval_folder(tmp_path / "r")


def test_an_added_ranking_is_listed(tmp_path: Path) -> None:
    add_bm25(tmp_path / "r")
    folder = RetrievalFolder(tmp_path / "r")
    assert folder.rankings == {"bm25": RECORD}
    assert folder.ranking_path("bm25").read_text() == "q1 Q0 c1 1 1.5 bm25\n"


def test_a_failed_ranking_leaves_no_file(tmp_path: Path) -> None:
    def fail(file: TextIO) -> RankingRecord:
        file.write("half")
        raise ZeroDivisionError

    with prepare(tmp_path / "r") as folder, pytest.raises(ZeroDivisionError):
        folder.add_ranking("bm25", fail)
    assert list((tmp_path / "r" / "rankings").iterdir()) == []
    assert RetrievalFolder(tmp_path / "r").rankings == {}


def test_a_complete_ranking_marks_results_as_out_of_date(tmp_path: Path) -> None:
    folder = RetrievalFolder(make_folder(tmp_path))
    update_scores(folder, settings=BootstrapSettings(resamples=100))
    update_comparison(folder)
    write_document(folder.path / AUDIT, audit_benchmark(folder.reopen_benchmark()))

    def read_states() -> list[bool]:
        return [json.loads((folder.path / name).read_text())["out_of_date"] for name in LABEL_RESULTS]

    def check(file: TextIO) -> RankingRecord:
        assert read_states() == [False, False, False]
        assert set(RetrievalFolder(folder.path).rankings) == {"one", "two"}
        return write(file)

    assert list(folder.describe_out_of_date_results()) == []
    with open_for_writing(folder.path) as opened:
        opened.add_ranking("two", check)
    assert read_states() == [True, True, True]
    assert RetrievalFolder(folder.path).rankings["two"] == RECORD
    outdated = [note.split()[0] for note in folder.describe_out_of_date_results()]
    assert outdated == [str(folder.path / name) for name in LABEL_RESULTS]
    update_scores(folder, settings=BootstrapSettings(resamples=100))
    assert read_states() == [False, True, True]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"benchmark": replace(SMALL, queries={"q1": "sort", "q 2": "read\ta file"})}, "benchmark.sha256"),
        ({"benchmark": replace(SMALL, codes={**SMALL.codes, "c3": "x"})}, "benchmark.codes: 3"),
        ({"benchmark": replace(SMALL, grades={"q1": {"c1": 0}})}, "benchmark.grades: 3"),
        ({"code_view": "body"}, "code_view: 'full'"),
        ({"depth": 5}, "depth: 1000"),
    ],
)
def test_another_benchmark_is_rejected_with_the_difference(
    tmp_path: Path, changes: dict[str, Any], expected: str
) -> None:
    add_bm25(tmp_path / "r")
    with pytest.raises(RunFolderError, match="-o") as error, prepare(tmp_path / "r", **changes):
        pass
    assert expected in str(error.value)
    assert RetrievalFolder(tmp_path / "r").rankings == {"bm25": RECORD}


def test_another_writer_is_rejected(tmp_path: Path) -> None:
    add_bm25(tmp_path / "r")
    script = "import sys, agent.retrieval.folder as f\nwith f.open_for_writing(f.Path(sys.argv[1])): pass"
    with open_for_writing(tmp_path / "r"):
        process = subprocess.run([sys.executable, "-c", script, tmp_path / "r"], capture_output=True, text=True)
    assert str(os.getpid()) in process.stderr
    assert subprocess.run([sys.executable, "-c", script, tmp_path / "r"]).returncode == 0


def test_a_folder_without_manifest_is_created_again(tmp_path: Path) -> None:
    (tmp_path / "rankings").mkdir()
    (tmp_path / "queries.jsonl").write_text("{")
    with prepare(tmp_path) as folder:
        assert folder.read_queries() == dict(SMALL.queries)


def test_a_folder_with_other_files_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(RunFolderError, match=r"thesis\.tex"), prepare(tmp_path):
        pass
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(RunFolderError, match="agent retrieval run"):
            RetrievalFolder(path)


def test_opening_a_run_folder_raises_an_error_with_its_retrieval_folder(tmp_path: Path) -> None:
    add_bm25(tmp_path / "retrieval")
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(RunFolderError, match=str(tmp_path / "retrieval")):
        RetrievalFolder(tmp_path)


def test_a_ranking_without_its_file_is_not_listed(tmp_path: Path) -> None:
    add_bm25(tmp_path / "r")
    RetrievalFolder(tmp_path / "r").ranking_path("bm25").unlink()
    assert RetrievalFolder(tmp_path / "r").rankings == {}
    add_bm25(tmp_path / "r")
    assert RetrievalFolder(tmp_path / "r").rankings == {"bm25": RECORD}


def test_the_benchmark_is_reopened_even_after_both_were_moved(tmp_path: Path) -> None:
    small = tmp_path / "a"
    small.mkdir()
    (small / "queries.json").write_text('{"query-idx": 1, "query": "sort", "code-idx": 7, "label": 1}\n')
    (small / "codes.jsonl").write_text('{"code-idx": 7, "code": "sorted(x)"}\n')
    source = BenchmarkSource(path=str(small / "queries.json"), codes=[str(small / "codes.jsonl")])
    benchmark = open_benchmark(source.path, source.codes)
    with prepare(small / "r", benchmark, source=source):
        pass
    small.rename(tmp_path / "b")
    assert RetrievalFolder(tmp_path / "b" / "r").reopen_benchmark() == benchmark
    (tmp_path / "link").symlink_to(tmp_path / "b" / "r")
    assert RetrievalFolder(tmp_path / "link").reopen_benchmark() == benchmark
    (tmp_path / "b" / "codes.jsonl").write_text('{"code-idx": 7, "code": "sort(x)"}\n')
    with pytest.raises(RunFolderError, match=r"benchmark\.sha256"):
        RetrievalFolder(tmp_path / "b" / "r").reopen_benchmark()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("manifest.json", "{}", r"manifest\.json"),
        ("queries.jsonl", '{"_id": "1"}\n', r"queries\.jsonl:1:"),
        ("qrels.tsv", "query-id\tcorpus-id\tscore\nq1 c1 1\n", r"qrels\.tsv:2:"),
    ],
)
def test_a_damaged_file_raises_an_error(tmp_path: Path, file: str, content: str, message: str) -> None:
    add_bm25(tmp_path / "r")
    (tmp_path / "r" / file).write_text(content)
    with pytest.raises(RunFolderError, match=message):
        _ = RetrievalFolder(tmp_path / "r").read_queries(), RetrievalFolder(tmp_path / "r").read_grades()


@given(st.lists(st.text(max_size=300), unique=True))
def test_file_names_of_searchers_are_unique_and_safe(names: list[str]) -> None:
    file_names = {encode_file_name(name) for name in names}
    assert len(file_names) == len(names)
    for file_name in file_names:
        assert "/" not in file_name
        assert "\0" not in file_name
        assert len(f".{file_name}.trec") <= 255


@settings(max_examples=20)
@given(
    st.dictionaries(st.text(), st.dictionaries(st.text(), st.integers(0, 9), min_size=1), min_size=1, max_size=3),
)
def test_grades_survive_a_round_trip_with_any_ids(
    tmp_path_factory: pytest.TempPathFactory, grades: dict[str, dict[str, int]]
) -> None:
    benchmark = replace(SMALL, grades=grades, queries=dict.fromkeys(grades, "\ud800"))
    with prepare(tmp_path_factory.mktemp("r"), benchmark) as folder:
        assert (folder.read_grades(), folder.read_queries()) == (grades, dict(benchmark.queries))
