"""Combines searchers: by exact weighted sums of cosine similarities, or by reciprocal rank fusion.

Codes are compared in shards, so memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agent.evaluation.lazy_numpy import np
from agent.retrieval.searchers.base import SearchResult, Vectors
from agent.types import Progress

Array = Any  # a NumPy array
# Scores are rounded, so that codes tie if their scores differ only by rounding errors: weighted sums of cosines to
# `_DECIMALS`, sums of reciprocal ranks to `_RANK_DECIMALS` (for two searchers, distinct sums differ by over 7e-13).
_DECIMALS, _RANK_DECIMALS = 7, 15
_MAX_CODES, _MAX_SCORES = 4_096, 4_000_000  # per shard and searcher
RRF_DEPTH, _RRF_CONSTANT = 1_000, 60


class BestCodes:
    """The best codes for each query, best first. Codes with equal scores are sorted by position.

    If a query has fewer than `top` codes, its last positions are -1. `parts` has shape (queries, top, searchers). It
    contains the score of each searcher, or NaN if the searcher did not retrieve the code.
    """

    def __init__(self, queries: int, top: int, searchers: int) -> None:
        shape = (queries, top)
        self.positions, self.scores = np.full(shape, -1, np.int32), np.full(shape, -np.inf)
        self.parts = np.full((queries, top, searchers), np.nan)

    def merge(self, queries: Array, positions: Array, scores: Array, parts: Array) -> None:
        """Add a code for each number in `queries`, and keep the best codes."""
        top = self.positions.shape[1]
        changed = np.unique(queries)
        queries = np.concatenate([np.repeat(changed, top), queries])
        positions = np.concatenate([self.positions[changed].ravel(), positions])
        scores = np.concatenate([self.scores[changed].ravel(), scores])
        parts = np.concatenate([self.parts[changed].reshape(-1, parts.shape[1]), parts])
        order = np.lexsort((positions, -scores, queries))
        best = order[np.searchsorted(queries[order], changed)[:, None] + np.arange(top)]
        self.positions[changed] = positions[best]
        self.scores[changed] = scores[best]
        self.parts[changed] = parts[best]


@dataclass(frozen=True)
class Proposals:
    """The codes that an ensemble of searchers proposes, and the positions of each searcher's own best codes."""

    best: BestCodes
    own: Mapping[str, Array]

    def measure_overlap(self) -> dict[str, dict[str, float]]:
        """Compare each searcher's own codes with the ensemble's, pooled over all queries (Table I of CoSQA+).

        `share` is the part of the searcher's codes that the ensemble chose. `jaccard` is the Jaccard similarity.
        """
        overlap = {}
        for name, own in self.own.items():
            rows = zip(own, self.best.positions, strict=True)
            common = sum(int(np.isin(mine[mine >= 0], theirs).sum()) for mine, theirs in rows)
            size, other = (int((positions >= 0).sum()) for positions in (own, self.best.positions))
            overlap[name] = {"share": common / max(1, size), "jaccard": common / max(1, size + other - common)}
        return overlap


def combine_cosines(
    vectors: Mapping[str, Vectors], codes: int, top: int, rule: Literal["mean", "repository"], progress: Progress
) -> Proposals:
    """Propose the `top` codes with the highest weighted sums of cosines. A zero vector has cosine 0 with all vectors.

    With `mean`, all weights are equal. With `repository`, the weight of a searcher is the reciprocal of its largest
    absolute cosine for the query, or 0 if all its cosines are 0.

    Raises:
        RunStopped: vectors cannot be read.
    """
    searchers = list(vectors.values())
    queries = [_normalise(searcher.queries) for searcher in searchers]
    weights = np.full((len(searchers), len(queries[0])), 1 / len(searchers))
    if rule == "repository":
        maxima = np.zeros(weights.shape)
        for _, cosines in _iterate_shards(searchers, queries, codes, "finding the largest cosines", progress):
            maxima = np.maximum(maxima, [np.abs(part).max(axis=1) for part in cosines])
        weights = np.divide(1, maxima, out=np.zeros(weights.shape), where=maxima.round(_DECIMALS) > 0)
    ensemble = BestCodes(len(queries[0]), top, len(searchers))
    own = [BestCodes(len(queries[0]), top, 1) for _ in searchers]
    for start, cosines in _iterate_shards(searchers, queries, codes, "comparing vectors", progress):
        scores = sum(part * weight[:, None] for part, weight in zip(cosines, weights, strict=True))
        _merge_shard(ensemble, start, scores, cosines)
        for best, part in zip(own, cosines, strict=True):
            _merge_shard(best, start, part, [part])
    return Proposals(ensemble, {name: best.positions for name, best in zip(vectors, own, strict=True)})


def _normalise(vectors: Array) -> Array:
    """Return float64 vectors of length 1. Zero vectors are unchanged."""
    vectors = vectors.astype("float64")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=vectors, where=lengths > 0)


def _iterate_shards(
    searchers: Sequence[Vectors], queries: Sequence[Array], codes: int, step: str, progress: Progress
) -> Iterator[tuple[int, list[Array]]]:
    """Iterate over shards: the position of the first code, and each searcher's cosines, of shape (queries, codes)."""
    size = max(1, min(_MAX_CODES, _MAX_SCORES // len(queries[0])))
    for start in range(0, codes, size):
        stop = min(start + size, codes)
        pairs = zip(searchers, queries, strict=True)
        yield start, [units @ _normalise(searcher.read_codes(start, stop)).T for searcher, units in pairs]
        progress(step, stop, codes)


def _merge_shard(best: BestCodes, start: int, scores: Array, parts: Sequence[Array]) -> None:
    """Merge the best codes in a shard. `scores` and each of `parts` have shape (queries, codes in the shard)."""
    top = best.positions.shape[1]
    scores = scores.round(_DECIMALS) + 0.0  # -0.0 becomes 0.0
    limits = best.scores[:, -1:]
    is_better = scores > limits  # a code that ties with an earlier one is not better
    if (last := scores.shape[1] - top) > 0 and np.isneginf(limits).any():
        is_better &= scores >= np.partition(scores, last, axis=1)[:, last, None]
    rows, columns = np.nonzero(is_better)
    best.merge(rows, columns + start, scores[rows, columns], np.stack([p[rows, columns] for p in parts], axis=1))


def cut_ranking(result: SearchResult) -> tuple[Array, Array]:
    """Return the positions (int32) and scores (float32) of the best 1,000 codes. Ties are sorted by position."""
    order = np.lexsort((result.positions, -result.scores))[:RRF_DEPTH]
    return result.positions[order].astype("int32"), result.scores[order].astype("float32")


def fuse_ranks(rankings: Mapping[str, Sequence[tuple[Array, Array]]], top: int) -> Proposals:
    """Propose the `top` codes with the highest sum of 1 / (60 + rank) over all searchers (Cormack et al. 2009).

    `rankings` contains the result of `cut_ranking` for each query. Codes without a rank are not proposed.
    """
    queries = len(next(iter(rankings.values())))
    best = BestCodes(queries, top, len(rankings))
    own = {name: np.full((queries, top), -1, np.int32) for name in rankings}
    for query, results in enumerate(zip(*rankings.values(), strict=True)):
        positions = np.unique(np.concatenate([ranked for ranked, _ in results]))
        parts, sums = np.full((len(positions), len(results)), np.nan), np.zeros(len(positions))
        for searcher, (name, (ranked, scores)) in enumerate(zip(rankings, results, strict=True)):
            places = np.searchsorted(positions, ranked)
            sums[places] += 1 / (_RRF_CONSTANT + 1 + np.arange(len(ranked)))
            parts[places, searcher] = scores
            own[name][query, : len(ranked)] = ranked[:top]
        best.merge(np.full(len(positions), query), positions, sums.round(_RANK_DECIMALS), parts)
    return Proposals(best, own)
