"""BEIR: what retrieval is measured with. ir-measures reads the judgements."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.exports.rows import escape_surrogates
from agent.types import Pair
from tests.exports.runs import exported, lines, make_run

# query and code of each pair, and its label
JUDGED = {
    "a": ("sort", "one", 1),
    "b": ("sort", "two", 0),
    "c": ("join", "one", 1),
    "d": ("join", "three", None),
    "e": ("read\ud800", "four", 0),
    "f": ("sort", "one", 1),
    "g": ("join", "two", 1),
    "h": ("join", "two", 0),
}


def make(folder: Path, judged: dict[str, tuple[str, str, int | None]] = JUDGED) -> Path:
    pairs = [Pair(id=name, query=query, code=code) for name, (query, code, _) in judged.items()]
    return make_run(folder / "run", pairs, {name: {"label": label} for name, (*_, label) in judged.items()})


def texts(path: Path) -> dict[str, str]:
    return {line["_id"]: line["text"] for line in lines(path)}


def judgements(folder: Path) -> dict[tuple[str, str], int]:
    """Return the label of each query and code, as ir-measures reads them."""
    queries, corpus = texts(folder / "queries.jsonl"), texts(folder / "corpus.jsonl")
    qrels = list(ir_measures.read_trec_qrels(str(folder / "qrels/test.trec")))
    with (folder / "qrels/test.tsv").open(newline="") as file:
        head, *rows = csv.reader(file, delimiter="\t")
    assert head == ["query-id", "corpus-id", "score"]
    assert [(qrel.query_id, qrel.doc_id, str(qrel.relevance)) for qrel in qrels] == [tuple(row) for row in rows]
    return {(queries[qrel.query_id], corpus[qrel.doc_id]): qrel.relevance for qrel in qrels}


def test_equal_code_is_one_document_and_pairs_without_one_label_are_left_out(tmp_path: Path) -> None:
    export = exported(make(tmp_path), "beir", tmp_path / "beir")
    assert list(texts(tmp_path / "beir/queries.jsonl").values()) == ["sort", "join", "read\\ud800"]
    assert list(texts(tmp_path / "beir/corpus.jsonl").values()) == ["one", "two", "four"]
    assert judgements(tmp_path / "beir") == {("sort", "one"): 1, ("sort", "two"): 0, ("join", "one"): 1}
    assert export.left_out == {"without a label": 1}
    assert export.notes == [
        "3 queries · 3 documents · qrels of the 2 with a match",
        "2 pairs with the query and code of an earlier one; 1 of these judgements left out, as their labels differ",
    ]


def test_ir_measures_scores_a_ranking_by_it(tmp_path: Path) -> None:
    exported(make(tmp_path), "beir", tmp_path / "beir")
    qrels = list(ir_measures.read_trec_qrels(str(tmp_path / "beir/qrels/test.trec")))
    measures = [ir_measures.nDCG @ 10, ir_measures.RR, ir_measures.R @ 10]

    def mean(scores: dict[int, float]) -> dict[Any, float]:
        run = [ir_measures.ScoredDoc(qrel.query_id, qrel.doc_id, scores[qrel.relevance]) for qrel in qrels]
        return dict(ir_measures.calc_aggregate(measures, qrels, run))

    assert mean({1: 2.0, 0: 1.0}) == dict.fromkeys(measures, pytest.approx(1.0))
    # the query with one match and one other finds it second, the one with a match alone still first
    assert mean({1: 1.0, 0: 2.0})[ir_measures.RR] == pytest.approx(0.75)


hostile = st.text(st.characters(), min_size=1, max_size=4).filter(lambda text: bool(text.strip()))


@pytest.mark.slow
@given(
    judged=st.lists(
        st.tuples(st.sampled_from(["\u2028q \t", "q\r\n"]) | hostile, hostile, st.sampled_from([0, 1, None])),
        min_size=1,
    )
)
def test_every_judgement_comes_back_from_hostile_text(
    tmp_path_factory: pytest.TempPathFactory, judged: list[tuple[str, str, int | None]]
) -> None:
    folder = tmp_path_factory.mktemp("beir")
    labels: dict[tuple[str, str], set[int]] = {}
    for query, code, label in judged:
        if label is not None:
            labels.setdefault((whole(query), whole(code)), set()).add(label)
    if not labels:
        return
    exported(make(folder, {str(number): each for number, each in enumerate(judged)}), "beir", folder / "beir")
    alike = {key: next(iter(found)) for key, found in labels.items() if len(found) == 1}
    matched = {query for (query, _), label in alike.items() if label}
    assert judgements(folder / "beir") == {key: label for key, label in alike.items() if key[0] in matched}


def whole(text: str) -> str:
    return escape_surrogates(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass"))
