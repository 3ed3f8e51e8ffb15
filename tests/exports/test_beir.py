"""Tests for the BEIR export. ir-measures reads the judgements."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.exports.rows import escape_surrogates
from agent.retrieval.benchmark import open_benchmark
from agent.types import Pair
from tests.exports.runs import export_run, make_run, read_lines

# query, code and label of each pair
LABELLED = {
    "a": ("sort", "one", 1),
    "b": ("sort", "two", 0),
    "c": ("join", "one", 1),
    "d": ("join", "three", None),
    "e": ("read\ud800", "four", 0),
    "f": ("sort", "one", 1),
    "g": ("join", "two", 1),
    "h": ("join", "two", 0),
}


def make_labelled_run(folder: Path, labelled: dict[str, tuple[str, str, int | None]] = LABELLED) -> Path:
    pairs = [Pair(id=name, query=query, code=code) for name, (query, code, _) in labelled.items()]
    return make_run(folder / "run", pairs, {name: {"label": label} for name, (*_, label) in labelled.items()})


def read_texts(path: Path) -> dict[str, str]:
    return {line["_id"]: line["text"] for line in read_lines(path)}


def read_judgements(folder: Path) -> dict[tuple[str, str], int]:
    """Return the label of each query and code, as ir-measures reads them."""
    queries, corpus = read_texts(folder / "queries.jsonl"), read_texts(folder / "corpus.jsonl")
    qrels = list(ir_measures.read_trec_qrels(str(folder / "qrels/test.trec")))
    with (folder / "qrels/test.tsv").open(newline="") as file:
        head, *rows = csv.reader(file, delimiter="\t")
    assert head == ["query-id", "corpus-id", "score"]
    assert [(qrel.query_id, qrel.doc_id, str(qrel.relevance)) for qrel in qrels] == [tuple(row) for row in rows]
    return {(queries[qrel.query_id], corpus[qrel.doc_id]): qrel.relevance for qrel in qrels}


def test_generated_code_is_counted(tmp_path: Path) -> None:
    pairs = [Pair(id=name, query=name, code=name, meta={"source": name}) for name in ("generated", "human")]
    note, _ = export_run(make_run(tmp_path / "run", pairs), "beir", tmp_path / "beir").notes
    assert re.findall(r"\d+", note) == ["1"]


def test_equal_snippets_share_a_document_and_unlabelled_or_conflicting_pairs_are_skipped(tmp_path: Path) -> None:
    export = export_run(make_labelled_run(tmp_path), "beir", tmp_path / "beir")
    assert list(read_texts(tmp_path / "beir/queries.jsonl").values()) == ["sort", "join", "read\\ud800"]
    assert list(read_texts(tmp_path / "beir/corpus.jsonl").values()) == ["one", "two", "four"]
    assert read_judgements(tmp_path / "beir") == {("sort", "one"): 1, ("sort", "two"): 0, ("join", "one"): 1}
    assert export.left_out == {"without a label": 1}
    sizes, duplicates = export.notes
    assert re.findall(r"\d+", sizes) == ["3", "3", "3", "2"]
    assert re.findall(r"\d+", duplicates) == ["2", "1"]


def test_mteb_finds_its_configurations_and_splits(tmp_path: Path) -> None:
    import datasets

    folder, cache = tmp_path / "beir", str(tmp_path / "cache")
    export_run(make_labelled_run(tmp_path), "beir", folder)
    # the names that RetrievalDatasetLoader of mteb 2 reads
    qrels, corpus, queries = (
        datasets.load_dataset(str(folder), name, split=split, cache_dir=cache)
        for name, split in (("default", "test"), ("corpus", "corpus"), ("queries", "queries"))
    )
    assert (corpus.column_names, queries.column_names) == (["_id", "title", "text"], ["_id", "text"])
    texts = [dict(zip(part["_id"], part["text"], strict=True)) for part in (queries, corpus)]
    rows = ((texts[0][row["query-id"]], texts[1][row["corpus-id"]], row["score"]) for row in qrels)
    assert {(query, code): score for query, code, score in rows} == read_judgements(folder)
    assert len(qrels) == sum(map(len, open_benchmark(folder).grades.values())) == 3


def test_ir_measures_accepts_the_judgements(tmp_path: Path) -> None:
    export_run(make_labelled_run(tmp_path), "beir", tmp_path / "beir")
    qrels = list(ir_measures.read_trec_qrels(str(tmp_path / "beir/qrels/test.trec")))
    measures = [ir_measures.nDCG @ 10, ir_measures.RR, ir_measures.R @ 10]

    def mean(scores: dict[int, float]) -> dict[Any, float]:
        run = [ir_measures.ScoredDoc(qrel.query_id, qrel.doc_id, scores[qrel.relevance]) for qrel in qrels]
        return dict(ir_measures.calc_aggregate(measures, qrels, run))

    assert mean({1: 2.0, 0: 1.0}) == dict.fromkeys(measures, pytest.approx(1.0))
    # the match ranks second for the query with two snippets, and first for the other query
    assert mean({1: 1.0, 0: 2.0})[ir_measures.RR] == pytest.approx(0.75)


hostile = st.text(st.characters(), min_size=1, max_size=4).filter(lambda text: bool(text.strip()))


@pytest.mark.slow
@given(
    labelled=st.lists(
        st.tuples(st.sampled_from(["\u2028q \t", "q\r\n"]) | hostile, hostile, st.sampled_from([0, 1, None])),
        min_size=1,
    )
)
def test_judgements_of_hostile_text_survive_a_round_trip(
    tmp_path_factory: pytest.TempPathFactory, labelled: list[tuple[str, str, int | None]]
) -> None:
    folder = tmp_path_factory.mktemp("beir")
    labels: dict[tuple[str, str], set[int]] = {}
    for query, code, label in labelled:
        if label is not None:
            labels.setdefault((normalise(query), normalise(code)), set()).add(label)
    if not labels:
        return
    run = make_labelled_run(folder, {str(number): pair for number, pair in enumerate(labelled)})
    export_run(run, "beir", folder / "beir")
    consistent = {key: next(iter(values)) for key, values in labels.items() if len(values) == 1}
    relevant = {query for (query, _), label in consistent.items() if label}
    assert read_judgements(folder / "beir") == {key: label for key, label in consistent.items() if key[0] in relevant}


def normalise(text: str) -> str:
    return escape_surrogates(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass"))
