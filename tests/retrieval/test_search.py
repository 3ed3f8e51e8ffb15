"""A searcher's ranking is kept whole, with what it took; rankings of others are taken in where their ids are known."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.errors import InputError, UsageError
from agent.evaluation.statistics import import_numpy
from agent.retrieval.benchmark import open_benchmark
from agent.retrieval.folder import RetrievalFolder, open_for_writing, prepare_folder
from agent.retrieval.rankings import read_trec
from agent.retrieval.search import has_ranking, import_ranking, search
from agent.retrieval.searchers.base import Progress, SearchResult
from agent.retrieval.searchers.registry import make_searcher
from tests.cli.processes import until
from tests.retrieval.pooled import CODES, make_folder, write_benchmark

# searches two of three queries, says so, and never comes to the third
SLOW = """
import sys, time
from pathlib import Path
from tests.retrieval.test_search import Given, ranked_by
class Slow(Given):
    def search(self, queries, depth, progress):
        for number, found in enumerate(super().search(queries, depth, progress)):
            if number == 2:
                print("searching", flush=True)
                time.sleep(600)
            yield found
ranked_by(Slow("given"), Path(sys.argv[1]))
"""


class Given:
    """A searcher that scores codes by their lengths."""

    about = "by length"

    def __init__(self, name: str, **settings: Any) -> None:
        self.name = name
        self.settings: Mapping[str, Any] = settings
        self.notes = ("lengths say little",)

    def index(self, codes: Sequence[str], _: Progress) -> None:
        self.lengths = import_numpy().array([float(len(code)) for code in codes])

    def search(self, queries: Sequence[str], _depth: int, _: Progress) -> Iterator[SearchResult]:
        for _ in queries:
            yield SearchResult(import_numpy().arange(len(self.lengths)), self.lengths)


def ranked_by(searcher: Any, folder: Path, texts: Sequence[str] = tuple(CODES.values())) -> None:
    """Have a searcher rank the benchmark that lies beside the folder."""
    source = write_benchmark(folder.parent)
    benchmark = open_benchmark(source.path, source.codes)
    with prepare_folder(folder, benchmark, source, code_view="full", depth=10) as opened:
        search(opened, benchmark, texts, searcher, lambda *_: None, ["1 code does not parse"])


def test_a_ranking_has_every_query_with_codes_by_their_ids(tmp_path: Path) -> None:
    ranked_by(Given("given"), tmp_path / "r")
    found = dict(read_trec(RetrievalFolder(tmp_path / "r").ranking_path("given")))
    assert found == {query: {code: float(len(text)) for code, text in CODES.items()} for query in ("q1", "q2", "q3")}


def test_the_texts_that_are_searched_are_those_of_the_view(tmp_path: Path) -> None:
    ranked_by(Given("given"), tmp_path / "r", ["x"] * len(CODES))
    assert set(dict(read_trec(RetrievalFolder(tmp_path / "r").ranking_path("given")))["q1"].values()) == {1.0}


def test_what_it_took_is_recorded(tmp_path: Path) -> None:
    ranked_by(make_searcher("bm25"), tmp_path / "r")
    ranked = RetrievalFolder(tmp_path / "r").rankings["bm25"]
    assert ranked.kind == "searched"
    assert set(ranked.seconds) == {"index", "search"}
    assert all(seconds > 0 for seconds in ranked.seconds.values())
    assert 10 < (ranked.peak_memory_mb or 0) < 100_000
    assert {"bm25s", "numpy"} <= set(ranked.libraries)


@pytest.mark.slow
def test_peak_memory_is_that_of_the_search_where_the_system_can_tell(tmp_path: Path) -> None:
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("the mark cannot be set back here")
    before = import_numpy().ones(50_000_000)
    held_before = before.nbytes / 1e6
    ranked_by(Given("before"), tmp_path / "r")
    del before
    ranked_by(Given("after"), tmp_path / "r")
    of = RetrievalFolder(tmp_path / "r").rankings
    assert (of["before"].peak_memory_mb or 0) - (of["after"].peak_memory_mb or 0) > held_before / 2


def test_other_settings_are_not_done(tmp_path: Path) -> None:
    ranked_by(Given("given", k=1), tmp_path / "r")
    folder = RetrievalFolder(tmp_path / "r")
    assert has_ranking(folder, Given("given", k=1))
    assert not has_ranking(folder, Given("given", k=2))
    assert not has_ranking(folder, Given("other", k=1))
    assert folder.rankings["given"].notes == ["1 code does not parse", "lengths say little"]


@pytest.mark.slow
def test_after_a_kill_in_mid_search_the_same_goes_on(tmp_path: Path) -> None:
    script = [sys.executable, "-c", SLOW, str(tmp_path / "r")]
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "searching\n"
        rankings = tmp_path / "r" / "rankings"
        until(lambda: len(list(rankings.iterdir())) == 1, "a draft")
        process.kill()
    assert [each.suffix for each in rankings.iterdir()] == [".tmp"]
    assert RetrievalFolder(tmp_path / "r").rankings == {}
    ranked_by(Given("given"), tmp_path / "r")
    assert [each.name for each in rankings.iterdir()] == ["given.trec"]


class TestTake:
    def taken(self, folder: Path, content: str, name: str = "mine") -> dict[str, dict[str, float]]:
        file = folder.parent / "mine.trec"
        file.write_text(content)
        with open_for_writing(folder) as opened:
            import_ranking(opened, opened.reopen_benchmark(), name, file)
            return {query: dict(found) for query, found in read_trec(opened.ranking_path(name))}

    def test_a_run_file_is_copied(self, tmp_path: Path) -> None:
        folder = make_folder(tmp_path)
        assert self.taken(folder, "q1 Q0 c1 1 2.5 x\nq1 0 c2 7 .5 y\n") == {"q1": {"c1": 2.5, "c2": 0.5}}
        assert RetrievalFolder(folder).rankings["mine"].about == "taken from the file mine.trec"

    def test_codes_that_are_one_item_have_their_best_score(self, tmp_path: Path) -> None:
        folder = make_folder(tmp_path)
        (tmp_path / "mine.trec").write_text("q1 Q0 c1 1 1 x\nq1 Q0 copy 2 3 x\nq1 Q0 c2 3 2 x\n")
        with open_for_writing(folder) as opened:
            benchmark = replace(opened.reopen_benchmark(), same={"copy": "c1"})
            import_ranking(opened, benchmark, "mine", tmp_path / "mine.trec")
            assert dict(read_trec(opened.ranking_path("mine"))) == {"q1": {"c1": 3.0, "c2": 2.0}}

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            ("q9 Q0 c1 1 1 x", "mine.trec:2: the query 'q9' is not among the 3 of"),
            ("q2 Q0 c9 1 1 x", "mine.trec:2: the code 'c9' is not among the 5 of"),
        ],
    )
    def test_a_bad_line_is_named_and_nothing_changes(self, tmp_path: Path, line: str, said: str) -> None:
        folder = make_folder(tmp_path)
        self.taken(folder, "q1 Q0 c1 1 1 x\n")
        before = {each: each.read_bytes() for each in folder.rglob("*") if each.is_file() and each.name != ".lock"}
        with pytest.raises(InputError, match=re.escape(said)):
            self.taken(folder, f"q1 Q0 c2 1 1 x\n{line}\n")
        assert {each: each.read_bytes() for each in before} == before
        assert len(list((folder / "rankings").iterdir())) == len(RetrievalFolder(folder).rankings)

    def test_an_empty_file_is_refused(self, tmp_path: Path) -> None:
        folder = make_folder(tmp_path)
        with pytest.raises(InputError, match="holds no ranking"):
            self.taken(folder, "\n")
        assert not RetrievalFolder(folder).ranking_path("mine").exists()

    def test_the_name_of_a_searcher_is_refused(self, tmp_path: Path) -> None:
        folder = make_folder(tmp_path)
        with pytest.raises(UsageError, match="one is a searcher that was run here"):
            self.taken(folder, "q1 Q0 c1 1 1 x\n", name="one")
