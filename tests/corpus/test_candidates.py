"""Input of `agent corpus candidates`, the rules for pairs, and the searchers' memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.corpus.candidates import BestCodes, CandidateRules, Item, Proposals, propose_codes, read_items, write_pairs
from agent.corpus.output import open_output
from agent.datasets.reading import read_pairs
from agent.errors import InputError, RunStopped
from agent.retrieval.searchers.dense import DenseSearcher
from agent.retrieval.searchers.presets import EmbedderOptions
from agent.retrieval.searchers.registry import make_searcher
from agent.types import Origin
from tests.corpus.test_combine import compute_cosines, rank
from tests.retrieval.searchers.test_dense import CODES, HashEmbedder, silent

QUERIES = [Item(f"q{number}", f"query {number}", "python", {}) for number in range(5)]
TWO_CODES = [Item(f"c{number}", f"def f{number}(): pass", "python", {}) for number in range(2)]


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_proposals(
    folder: Path, positions: Sequence[Sequence[int]], scores: Any, codes: Sequence[Item], **rules: Any
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], Any]:
    """Return the pairs, the removed pairs, and the result of `write_pairs`."""
    best = BestCodes(len(positions), len(positions[0]), 1)
    best.positions[:], best.scores[:], best.parts[..., 0] = positions, scores, scores
    with open_output(folder / "p.jsonl") as writer:
        proposals, queries = Proposals(best, {"m": best.positions}), QUERIES[: len(positions)]
        result = write_pairs(writer, queries, codes, proposals, CandidateRules(**rules))
    names = ("p.jsonl", "p.removed.jsonl")
    pairs, removed = ([json.loads(line) for line in (folder / name).read_text().splitlines()] for name in names)
    return pairs, removed, result


def test_cosqas_rule_keeps_the_most_similar_pairs_of_a_code(tmp_path: Path) -> None:
    positions, scores = [[0], [0], [1], [0], [0]], [[0.7], [0.9], [0.4999999], [0.7], [0.5]]
    rules = {"top": 1, "min_similarity": 0.5, "max_uses": 2}
    pairs, removed, (uses, unanswered) = write_proposals(tmp_path, positions, scores, TWO_CODES, **rules)
    assert [pair["id"] for pair in pairs] == ["q0/c0", "q1/c0"]  # q0 and q3 tie: the first query wins
    assert [(row["query_id"], row["removed_by"], row["score"]) for row in removed] == [
        ("q2", "min-similarity", 0.4999999), ("q3", "max-uses", 0.7), ("q4", "max-uses", 0.5)
    ]  # fmt: skip
    assert (dict(uses), unanswered) == ({0: 2}, ["q2", "q3", "q4"])


def test_pairs_below_the_minimum_do_not_count_as_uses(tmp_path: Path) -> None:
    pairs, _, _ = write_proposals(
        tmp_path, [[0, 1], [1, 0]], [[0.9, 0.1], [0.8, 0.6]], TWO_CODES, min_similarity=0.5, max_uses=1
    )
    assert [(pair["id"], pair["meta"]["rank"]) for pair in pairs] == [("q0/c0", 1), ("q1/c1", 1)]


def test_pairs_have_the_meta_of_their_code_and_can_be_annotated(tmp_path: Path) -> None:
    meta = {"cluster": "c9", "repository": "github.com/a/b", "licence": "MIT"}
    codes = [Item("a/b c", "f()", "javascript", meta), Item("b%", "def g(): pass", "python", {})]
    rows, _, _ = write_proposals(tmp_path, [[1, 0], [0, -1]], [[0.5, -0.25], [1.0, -np.inf]], codes)
    pairs = [(pair.id, pair.code, pair.language) for pair in read_pairs(tmp_path / "p.jsonl")]
    assert pairs[:-1] == [("q0/b%25", "def g(): pass", "python"), ("q0/a%2Fb%20c", "f()", "javascript")]
    assert rows[1]["meta"] == {
        "query_id": "q0", "code_id": "a/b c", **meta, "rank": 2, "score": -0.25, "scores": {"m": -0.25}
    }  # fmt: skip
    assert rows[0]["meta"].keys() == {"query_id", "code_id", "rank", "score", "scores"}


def test_a_pair_has_the_origin_of_its_code(tmp_path: Path) -> None:
    origin = {"repository": "pack", "commit": "1.0", "module": "pack.a", "lines": [3, 4], "class": "A.B", "name": "f"}
    record = {"code": "f()", **origin, "path": "a.py", "cell": None, "licence": None, "sha256": "0"}
    unknown = ({"name": None}, {"commit": None}, {"repository": ""}, {"lines": [4]}, {"lines": [-1, 4]})
    rows = ({"id": f"c{number}", **record, **fields} for number, fields in enumerate(({}, *unknown)))
    codes = read_items(write(tmp_path / "codes.jsonl", *rows), "code")
    pairs, _, _ = write_proposals(tmp_path, [range(len(codes))], [[0.5] * len(codes)], codes)
    assert [pair.get("origin") for pair in pairs] == [{**origin, "path": "a.py"}, *[None] * len(unknown)]
    first, second, *_ = read_pairs(tmp_path / "p.jsonl")
    assert first.origin == Origin.model_validate({**origin, "path": "a.py"})
    assert ("origin" in first.meta, first.meta["repository"], second.origin) == (False, "pack", None)


def test_names_of_fields_are_those_of_the_known_datasets(tmp_path: Path) -> None:
    file = write(
        tmp_path / "q.jsonl", {"_id": "a", "text": "b"}, {"query-idx": 1, "doc": "c"}, {"id": "d", "query": "e"}
    )
    assert [(item.id, item.text) for item in read_items(file, "query")] == [("a", "b"), ("1", "c"), ("d", "e")]
    rows = {"code-idx": 1, "code": "f()", "cluster": 7, "licence": None, "language": "java"}, {"id": "b", "code": "g()"}
    assert read_items(write(tmp_path / "c.jsonl", *rows), "code") == [
        Item("1", "f()", "java", {"cluster": "7"}), Item("b", "g()", "python", {})
    ]  # fmt: skip


@pytest.mark.parametrize("row", [{"id": "a"}, {"code": " "}, {"code": None}, {"id": None}, {"licence": []}])
def test_bad_codes_are_located(tmp_path: Path, row: Any) -> None:
    file = write(tmp_path / "c.jsonl", {"id": "a", "code": "f()"}, {"id": "b", "code": "g()", **row})
    with pytest.raises(InputError) as caught:
        read_items(file, "code")
    assert (caught.value.path, caught.value.line) == (str(file), 2)


def test_dense_searchers_read_the_vectors_that_a_search_has_stored(tmp_path: Path) -> None:
    queries = [f"query {number}" * (number % 3 + 1) for number in range(9)]
    first = DenseSearcher(HashEmbedder(), tmp_path)
    first.index(CODES, silent)
    list(first.search(queries, 5, silent))
    embedder = HashEmbedder()
    vectors = DenseSearcher(embedder, tmp_path).embed(CODES, queries, silent)
    assert embedder.embedded == []
    expected = np.array([embedder._hash(code) for code in CODES], np.float32)
    assert (vectors.read_codes(0, 150) == expected[:150]).all()
    assert (vectors.read_codes(150, 200) == expected[150:]).all()
    assert (vectors.queries == np.array([embedder._hash(query) for query in queries], np.float32)).all()
    proposals, _ = propose_codes([DenseSearcher(embedder, tmp_path)], queries, CODES, CandidateRules(top=7), silent)
    assert proposals.best.positions.tolist() == rank(compute_cosines(vectors.queries, expected), 7).tolist()


def test_truncated_and_inconsistent_vectors_stop_the_run(tmp_path: Path) -> None:
    vectors = DenseSearcher(HashEmbedder(), tmp_path).embed(CODES, ["query"], silent)
    for file in tmp_path.glob("*.f32"):
        file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(RunStopped):
        vectors.read_codes(0, 200)
    DenseSearcher(HashEmbedder(), tmp_path).index(CODES, silent)
    with pytest.raises(RunStopped, match=r"\b8\b.*\b9\b"):
        DenseSearcher(HashEmbedder(dimensions=9), tmp_path).embed(CODES, ["other"], silent)


def test_only_one_searcher_is_in_memory() -> None:
    searchers, alive = [make_searcher(name, EmbedderOptions()) for name in ("bm25", "lsa")], dict[str, int]()
    propose_codes(
        searchers, ["query"], CODES, CandidateRules("rrf"), lambda step, *_: alive.update({step: len(searchers)})
    )
    assert {(step.split(":")[0], left) for step, left in alive.items()} == {("bm25", 1), ("lsa", 0)}
