"""Combined searchers equal a dense computation with all pairs, ties included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from agent.corpus import candidates
from agent.corpus.candidates import BestCodes, Proposals, combine_cosines, cut_ranking, fuse_ranks
from agent.retrieval.searchers.base import SearchResult, Vectors
from tests.retrieval.searchers.test_dense import silent

Array = np.ndarray[Any, Any]


def make_vectors(queries: Array, codes: Array) -> Vectors:
    return Vectors(queries.astype(np.float32), lambda start, stop: codes[start:stop].astype(np.float32))


def combine_pairs(pairs: Sequence[tuple[Array, Array]], top: int, rule: Any, shard: int = 4_096) -> Proposals:
    vectors = {f"m{number}": make_vectors(*pair) for number, pair in enumerate(pairs)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "_MAX_CODES", shard)
        return combine_cosines(vectors, len(pairs[0][1]), top, rule, silent)


def compute_cosines(queries: Array, codes: Array) -> Array:
    """Return all cosines in float64. Zero vectors have cosine 0."""
    queries, codes = (part.astype(np.float32).astype(np.float64) for part in (queries, codes))
    lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(codes, axis=1)
    return np.divide(queries @ codes.T, lengths, out=np.zeros(lengths.shape), where=lengths > 0)


def compute_scores(pairs: Sequence[tuple[Array, Array]], rule: str) -> Array:
    """Return the scores of all pairs by the definition of the rule."""
    cosines = [compute_cosines(*pair) for pair in pairs]
    if rule == "mean":
        return np.mean(cosines, axis=0)
    maxima = [np.abs(part).max(axis=1, keepdims=True) for part in cosines]
    return sum(part / np.where(peak < 1e-9, np.inf, peak) for part, peak in zip(cosines, maxima, strict=True))


def rank(scores: Array, top: int) -> Array:
    """Return the positions of the best scores in each row. Ties are sorted by position."""
    return np.argsort(-scores.round(7), axis=1, kind="stable")[:, :top]


def assert_equals_dense(proposals: Proposals, pairs: Sequence[tuple[Array, Array]], rule: str) -> None:
    scores = compute_scores(pairs, rule)
    count = min(proposals.best.positions.shape[1], scores.shape[1])
    positions = proposals.best.positions[:, :count]
    assert positions.tolist() == rank(scores, count).tolist()
    np.testing.assert_allclose(proposals.best.scores[:, :count], np.take_along_axis(scores, positions, 1), atol=1e-6)
    assert (proposals.best.positions[:, count:] == -1).all()
    for number, pair in enumerate(pairs):
        cosines = compute_cosines(*pair)
        part = proposals.best.parts[:, :count, number]
        np.testing.assert_allclose(part, np.take_along_axis(cosines, positions, 1), atol=1e-9)
        assert proposals.own[f"m{number}"][:, :count].tolist() == rank(cosines, count).tolist()


@pytest.mark.parametrize("rule", ["mean", "repository"])
def test_scores_and_ties_equal_a_dense_computation(rule: str) -> None:
    rng = np.random.default_rng(1)
    pairs = []
    for dimensions in (64, 300, 768):
        queries, codes = rng.normal(size=(60, dimensions)), rng.normal(size=(900, dimensions))
        codes[100:110] = codes[5]  # ties within a shard
        codes[[450, 899]] = codes[7]  # ties across shards
        codes[700] = 3 * codes[5]
        codes[[50, 800]] = 0
        queries[3], queries[4] = codes[5], -codes[7]
        pairs.append((queries, codes))
    pairs[0][0][9] = 0  # one searcher has no vector for this query
    for queries, _ in pairs:
        queries[10] = 0
    proposals = combine_pairs(pairs, 20, rule, shard=128)
    assert_equals_dense(proposals, pairs, rule)
    assert proposals.best.positions[3, :12].tolist() == [5, *range(100, 110), 700]
    assert proposals.best.positions[10].tolist() == list(range(20))
    assert not proposals.best.scores[10].any()


@st.composite
def draw_arrays(draw: st.DrawFn) -> list[tuple[Array, Array]]:
    """Draw short vectors with few different coordinates, so that there are many ties and zero vectors."""
    queries, codes = draw(st.integers(1, 5)), draw(st.integers(1, 30))

    def draw_vectors(rows: int, size: int) -> Array:
        return draw(arrays(np.int64, (rows, size), elements=st.integers(-2, 2))) * 0.1

    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    return [(draw_vectors(queries, size), draw_vectors(codes, size)) for size in sizes]


@given(draw_arrays(), st.integers(1, 35), st.sampled_from(["mean", "repository"]), st.integers(1, 31))
def test_any_shard_size_equals_a_dense_computation(pairs: Any, top: int, rule: str, shard: int) -> None:
    assert_equals_dense(combine_pairs(pairs, top, rule, shard), pairs, rule)


def test_overlap_is_pooled_over_queries() -> None:
    best = BestCodes(2, 2, 1)
    best.positions[:] = [[0, 1], [2, -1]]
    own = {"a": np.array([[0, 5], [2, 3]]), "b": np.array([[-1, -1], [2, -1]]), "c": np.full((2, 2), -1)}
    assert Proposals(best, own).measure_overlap() == {
        "a": {"share": 2 / 4, "jaccard": 2 / 5},
        "b": {"share": 1, "jaccard": 1 / 3},
        "c": {"share": 0, "jaccard": 0},
    }


SCORES = st.dictionaries(st.integers(0, 30), st.integers(1, 9).map(float))
RANKINGS = st.lists(st.lists(SCORES, min_size=2, max_size=2), min_size=1, max_size=3).map(
    lambda lists: {f"s{number}": queries for number, queries in enumerate(lists)}
)


def fuse(rankings: Mapping[str, Sequence[Mapping[int, float]]], top: int) -> Proposals:
    def cut(scores: Mapping[int, float]) -> Any:
        shuffled = dict(sorted(scores.items(), key=lambda item: hash(item)))
        positions, values = np.array(list(shuffled), np.int64), np.array(list(shuffled.values()), float)
        return cut_ranking(SearchResult(positions, values))

    return fuse_ranks({name: [cut(scores) for scores in queries] for name, queries in rankings.items()}, top)


def list_ranking(scores: Mapping[int, float]) -> list[int]:
    return sorted(scores, key=lambda position: (-scores[position], position))[:1000]


@given(RANKINGS, st.integers(1, 40))
def test_rank_fusion_equals_its_definition(rankings: Any, top: int) -> None:
    proposals = fuse(rankings, top)
    for query in range(2):
        sums: dict[int, Fraction] = {}
        for queries in rankings.values():
            for number, position in enumerate(list_ranking(queries[query]), 1):
                sums[position] = sums.get(position, Fraction(0)) + Fraction(1, 60 + number)
        expected = sorted(sums, key=lambda position: (-sums[position], position))[:top]
        best = proposals.best
        assert best.positions[query].tolist() == expected + [-1] * (top - len(expected))
        assert best.scores[query, : len(expected)] == pytest.approx([float(sums[code]) for code in expected], abs=1e-14)
        for number, (name, queries) in enumerate(rankings.items()):
            own = [queries[query].get(code, np.nan) for code in expected]
            np.testing.assert_array_equal(best.parts[query, : len(expected), number], own)
            ranked = list_ranking(queries[query])[:top]
            assert proposals.own[name][query].tolist() == ranked + [-1] * (top - len(ranked))


def test_rank_fusion_uses_the_best_1000_codes_of_each_searcher() -> None:
    scores = dict.fromkeys(range(1_200), 1.0)
    best = fuse({"a": [scores], "b": [{1_100: 1.0}]}, 2_000).best
    assert sorted(best.positions[0][:1_001].tolist()) == [*range(1_000), 1_100]
    assert best.positions[0, 1_001] == -1
