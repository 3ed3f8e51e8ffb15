"""Searching stores rankings with their cost. Run files of other tools can be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.errors import InputError, UsageError
from agent.evaluation.lazy_numpy import np
from agent.retrieval.benchmark import open_benchmark
from agent.retrieval.folder import RetrievalFolder, open_for_writing, prepare_folder
from agent.retrieval.rankings import read_trec
from agent.retrieval.search import has_ranking, import_ranking, search
from agent.retrieval.searchers.base import SearchResult
from agent.retrieval.searchers.registry import make_searcher
from agent.types import Progress
from tests.cli.processes import wait_until
from tests.retrieval.pooled import CODES, make_folder, write_benchmark

# searches two of three queries, prints a line, and sleeps
SLOW = """
import sys, time
from pathlib import Path
from tests.retrieval.test_search import LengthSearcher, add_searcher_ranking
class Slow(LengthSearcher):
    def search(self, queries, depth, progress):
        for number, result in enumerate(super().search(queries, depth, progress)):
            if number == 2:
                print("searching", flush=True)
                time.sleep(600)
            yield result
add_searcher_ranking(Slow("length"), Path(sys.argv[1]))
"""


class LengthSearcher:
    """Scores snippets by length."""

    about = "by length"

    def __init__(self, name: str, **settings: Any) -> None:
        self.name = name
        self.settings: Mapping[str, Any] = settings
        self.notes = ("ignores words",)

    def index(self, codes: Sequence[str], _: Progress) -> None:
        self.lengths = np.array([float(len(code)) for code in codes])

    def search(self, queries: Sequence[str], _depth: int, _: Progress) -> Iterator[SearchResult]:
        for _ in queries:
            yield SearchResult(np.arange(len(self.lengths)), self.lengths)


def add_searcher_ranking(searcher: Any, folder: Path, texts: Sequence[str] = tuple(CODES.values())) -> None:
    """Add a searcher's ranking of the benchmark to a retrieval folder."""
    source = write_benchmark(folder.parent)
    benchmark = open_benchmark(source.path, source.codes)
    with prepare_folder(folder, benchmark, source, code_view="full", depth=10) as opened:
        search(opened, benchmark, texts, searcher, lambda *_: None, ["1 code does not parse"])


def test_a_ranking_contains_every_query_with_code_ids(tmp_path: Path) -> None:
    add_searcher_ranking(LengthSearcher("length"), tmp_path / "r")
    ranking = dict(read_trec(RetrievalFolder(tmp_path / "r").ranking_path("length")))
    assert ranking == {query: {code: float(len(text)) for code, text in CODES.items()} for query in ("q1", "q2", "q3")}


def test_the_texts_are_searched_instead_of_the_benchmarks_snippets(tmp_path: Path) -> None:
    add_searcher_ranking(LengthSearcher("length"), tmp_path / "r", ["x"] * len(CODES))
    assert set(dict(read_trec(RetrievalFolder(tmp_path / "r").ranking_path("length")))["q1"].values()) == {1.0}


def test_time_memory_and_libraries_are_recorded(tmp_path: Path) -> None:
    add_searcher_ranking(make_searcher("bm25"), tmp_path / "r")
    record = RetrievalFolder(tmp_path / "r").rankings["bm25"]
    assert record.kind == "searched"
    assert set(record.seconds) == {"index", "search"}
    assert all(seconds > 0 for seconds in record.seconds.values())
    assert 10 < (record.peak_memory_mb or 0) < 100_000
    assert {"bm25s", "numpy"} <= set(record.libraries)


@pytest.mark.slow
def test_peak_memory_covers_only_the_search_if_it_can_be_reset(tmp_path: Path) -> None:
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("the maximum cannot be reset here")
    before = np.ones(50_000_000)
    array_mb = before.nbytes / 1e6
    add_searcher_ranking(LengthSearcher("before"), tmp_path / "r")
    del before
    add_searcher_ranking(LengthSearcher("after"), tmp_path / "r")
    records = RetrievalFolder(tmp_path / "r").rankings
    assert (records["before"].peak_memory_mb or 0) - (records["after"].peak_memory_mb or 0) > array_mb / 2


def test_a_ranking_must_have_the_settings_of_the_searcher(tmp_path: Path) -> None:
    add_searcher_ranking(LengthSearcher("length", k=1), tmp_path / "r")
    folder = RetrievalFolder(tmp_path / "r")
    assert has_ranking(folder, LengthSearcher("length", k=1))
    assert not has_ranking(folder, LengthSearcher("length", k=2))
    assert not has_ranking(folder, LengthSearcher("other", k=1))
    assert folder.rankings["length"].notes == ["1 code does not parse", "ignores words"]


@pytest.mark.slow
def test_a_killed_search_can_be_repeated(tmp_path: Path) -> None:
    script = [sys.executable, "-c", SLOW, str(tmp_path / "r")]
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "searching\n"
        rankings = tmp_path / "r" / "rankings"
        wait_until(lambda: len(list(rankings.iterdir())) == 1, "a draft")
        process.kill()
    assert [path.suffix for path in rankings.iterdir()] == [".tmp"]
    assert RetrievalFolder(tmp_path / "r").rankings == {}
    add_searcher_ranking(LengthSearcher("length"), tmp_path / "r")
    assert [path.name for path in rankings.iterdir()] == ["length.trec"]


class TestImport:
    def import_file(self, folder: Path, content: str, name: str = "mine") -> dict[str, dict[str, float]]:
        file = folder.parent / "mine.trec"
        file.write_text(content)
        with open_for_writing(folder) as opened:
            import_ranking(opened, opened.reopen_benchmark(), name, file)
            return {query: dict(scores) for query, scores in read_trec(opened.ranking_path(name))}

    def test_a_run_file_is_imported(self, tmp_path: Path) -> None:
        folder = make_folder(tmp_path)
        assert self.import_file(folder, "q1 Q0 c1 1 2.5 x\nq1 0 c2 7 .5 y\n") == {"q1": {"c1": 2.5, "c2": 0.5}}
        assert RetrievalFolder(folder).rankings["mine"].about.endswith("mine.trec")

    def test_merged_duplicates_get_their_best_score(self, tmp_path: Path) -> None:
        folder = make_folder(tmp_path)
        (tmp_path / "mine.trec").write_text("q1 Q0 c1 1 1 x\nq1 Q0 copy 2 3 x\nq1 Q0 c2 3 2 x\n")
        with open_for_writing(folder) as opened:
            benchmark = replace(opened.reopen_benchmark(), duplicates={"copy": "c1"})
            import_ranking(opened, benchmark, "mine", tmp_path / "mine.trec")
            assert dict(read_trec(opened.ranking_path("mine"))) == {"q1": {"c1": 3.0, "c2": 2.0}}

    @pytest.mark.parametrize(
        ("line", "detail"),
        [
            ("q9 Q0 c1 1 1 x", "'q9'"),
            ("q2 Q0 c9 1 1 x", "'c9'"),
        ],
    )
    def test_an_unknown_id_raises_an_error_and_changes_nothing(self, tmp_path: Path, line: str, detail: str) -> None:
        folder = make_folder(tmp_path)
        self.import_file(folder, "q1 Q0 c1 1 1 x\n")
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}
        with pytest.raises(InputError, match=rf"mine\.trec:2: .*{detail}"):
            self.import_file(folder, f"q1 Q0 c2 1 1 x\n{line}\n")
        assert {path: path.read_bytes() for path in before} == before
        assert len(list((folder / "rankings").iterdir())) == len(RetrievalFolder(folder).rankings)

    def test_an_empty_file_raises_input_error(self, tmp_path: Path) -> None:
        folder = make_folder(tmp_path)
        with pytest.raises(InputError, match=r"mine\.trec: .*ranking"):
            self.import_file(folder, "\n")
        assert not RetrievalFolder(folder).ranking_path("mine").exists()

    def test_the_name_of_a_searched_ranking_is_rejected(self, tmp_path: Path) -> None:
        folder = make_folder(tmp_path)
        with pytest.raises(UsageError, match="--ranking one="):
            self.import_file(folder, "q1 Q0 c1 1 1 x\n", name="one")
