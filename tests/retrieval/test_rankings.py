from __future__ import annotations

import gzip
import os
from collections.abc import Mapping
from pathlib import Path

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import InputError
from agent.retrieval.rankings import format_trec, read_trec

ID = st.text(min_size=1)
SCORE = st.floats(allow_nan=False, allow_infinity=False)
Rankings = Mapping[str, Mapping[str, float]]
RANKINGS = st.dictionaries(ID, st.dictionaries(ID, SCORE, min_size=1, max_size=5), max_size=5)


def write_rankings(path: Path, rankings: Rankings, tag: str) -> Path:
    lines = [line for query, scores in rankings.items() for line in format_trec(query, scores, tag)]
    path.write_text("".join(lines), encoding="utf-8", newline="\n")
    return path


@given(RANKINGS, ID)
def test_rankings_survive_a_round_trip_with_any_ids(
    tmp_path_factory: pytest.TempPathFactory, rankings: dict[str, dict[str, float]], tag: str
) -> None:
    path = write_rankings(tmp_path_factory.mktemp("run") / "searcher.trec", rankings, tag)
    assert dict(read_trec(path)) == rankings
    assert all(len(line.split()) == 6 for line in path.read_text("utf-8").splitlines())


def test_ir_measures_reads_written_rankings(tmp_path: Path) -> None:
    path = write_rankings(tmp_path / "a.trec", {"q1": {"low": 0.1, "high": 0.3}, "q2": {"x": -1.0}}, "bm25")
    assert path.read_text().splitlines()[0] == "q1 Q0 high 1 0.3 bm25"
    results = [(doc.query_id, doc.doc_id, doc.score) for doc in ir_measures.read_trec_run(str(path))]
    assert results == [("q1", "high", 0.3), ("q1", "low", 0.1), ("q2", "x", -1.0)]


def test_ranks_are_ignored_and_empty_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.trec"
    path.write_text("q\tQ0\ta 9 1 x\r\n\nq Q0 b 9 2e0 x\n")
    assert list(read_trec(path)) == [("q", {"a": 1.0, "b": 2.0})]


@pytest.mark.parametrize(
    ("lines", "number", "detail"),
    [
        ("q Q0 a 1 0.5 x\nq Q0 b 2 0.4", 2, "got 5"),
        ("q Q0 a 1 0.5 x y", 1, "got 7"),
        ("q Q0 a 1 nan x", 1, "'nan'"),
        ("q Q0 a 1 inf x", 1, "'inf'"),
        ("q Q0 a 1 high x", 1, "'high'"),
        ("q Q0 a 1 2 x\nq Q0 %61 2 1 x", 2, "'a'"),
        ("q Q0 a 1 2 x\nr Q0 a 1 2 x\nq Q0 b 2 1 x", 3, "'q'"),
        ("q Q0 %FF 1 2 x", 1, "'%FF'"),
    ],
)
def test_a_malformed_line_raises_an_error(tmp_path: Path, lines: str, number: int, detail: str) -> None:
    path = tmp_path / "a.trec"
    path.write_text(lines)
    with pytest.raises(InputError) as caught:
        list(read_trec(path))
    assert (caught.value.path, caught.value.line, detail in caught.value.cause) == (str(path), number, True)


def test_queries_are_yielded_before_the_file_is_read_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.trec"
    path.write_text("q Q0 a 1 2 x\nr Q0 a 1 2 x\nmalformed\n")
    assert next(read_trec(path)) == ("q", {"a": 2.0})


def test_a_missing_file_raises_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.trec"):
        list(read_trec(tmp_path / "none.trec"))


def test_a_pipe_is_rejected_because_rankings_are_read_twice(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.trec")
    with pytest.raises(InputError, match=r"pipe\.trec: .*pipe"):
        list(read_trec(tmp_path / "pipe.trec"))


@pytest.mark.parametrize("name", ["run.trec", "run.trec.gz"])
def test_a_byte_order_mark_is_ignored(tmp_path: Path, name: str) -> None:
    content = b"\xef\xbb\xbfq1 Q0 c1 1 2.5 tag\n"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert list(read_trec(tmp_path / name)) == [("q1", {"c1": 2.5})]
