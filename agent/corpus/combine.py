"""Combines searchers: by exact weighted sums of cosine similarities, or by reciprocal rank fusion.

Codes are compared in shards, so memory does not grow with their number. In each shard, float32 products select pairs,
whose scores are then computed in float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agent.evaluation.statistics import import_numpy
from agent.retrieval.searchers.base import Progress, SearchResult, Vectors

Array = Any  # a NumPy array
# Scores are rounded, so that codes tie if their scores differ only by rounding errors: weighted sums of cosines to
# `_DECIMALS`, sums of reciprocal ranks to `_RANK_DECIMALS` (for two searchers, distinct sums differ by over 7e-13).
_DECIMALS, _RANK_DECIMALS = 7, 15
_MAX_CODES, _MAX_SCORES = 4_096, 4_000_000  # per shard and searcher
_CHUNK_PAIRS = 512  # pairs whose vectors are gathered at a time, so that they fit into the cache
RRF_DEPTH, _RRF_CONSTANT = 1_000, 60


class BestCodes:
    """The best codes for each query, best first. Codes with equal scores are sorted by position.

    If a query has fewer than `top` codes, its last positions are -1. `parts` has shape (queries, top, searchers). It
    contains the score of each searcher, or NaN if the searcher did not retrieve the code.
    """

    def __init__(self, queries: int, top: int, searchers: int) -> None:
        np, shape = import_numpy(), (queries, top)
        self.positions, self.scores = np.full(shape, -1, np.int32), np.full(shape, -np.inf)
        self.parts = np.full((queries, top, searchers), np.nan)

    def merge(self, queries: Array, positions: Array, scores: Array, parts: Array) -> None:
        """Add a code for each number in `queries`, and keep the best codes."""
        np, top = import_numpy(), self.positions.shape[1]
        changed = np.unique(queries)
        queries = np.concatenate([np.repeat(changed, top), queries])
        positions = np.concatenate([self.positions[changed].ravel(), positions])
        scores = np.concatenate([self.scores[changed].ravel(), scores])
        parts = np.concatenate([self.parts[changed].reshape(-1, parts.shape[1]), parts])
        order = np.lexsort((positions, -scores, queries))
        best = order[np.searchsorted(queries[order], changed)[:, None] + np.arange(top)]
        self.positions[changed], self.scores[changed], self.parts[changed] = positions[best], scores[best], parts[best]


@dataclass(frozen=True)
class Proposals:
    """The codes that an ensemble of searchers proposes, and the positions of each searcher's own best codes."""

    best: BestCodes
    own: Mapping[str, Array]

    def measure_overlap(self) -> dict[str, dict[str, float]]:
        """Compare each searcher's own codes with the ensemble's, pooled over all queries (Table I of CoSQA+).

        `share` is the part of the searcher's codes that the ensemble chose. `jaccard` is the Jaccard similarity.
        """
        np, overlap = import_numpy(), {}
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
    absolute cosine for the query, or 0 if all its cosines are 0. Raises RunStopped if vectors cannot be read.
    """
    np, searchers = import_numpy(), list(vectors.values())
    queries, count = [_Scaled(searcher.queries) for searcher in searchers], len(searchers[0].queries)
    weights = np.full((count, len(searchers)), 1 / len(searchers))
    if rule == "repository":
        maxima = np.zeros(weights.shape)
        for shard in _iterate_shards(searchers, queries, codes, "finding the largest cosines", progress):
            _update_maxima(maxima, shard)
        weights = np.divide(1, maxima, out=np.zeros(weights.shape), where=maxima.round(_DECIMALS) > 0)
    ensemble = BestCodes(count, top, len(searchers))
    own = [BestCodes(count, top, 1) for _ in searchers]
    for shard in _iterate_shards(searchers, queries, codes, "comparing vectors", progress):
        _update_best(ensemble, shard, range(len(searchers)), weights)
        for number, best in enumerate(own):
            _update_best(best, shard, [number], np.ones((count, 1)))
    return Proposals(ensemble, {name: best.positions for name, best in zip(vectors, own, strict=True)})


class _Scaled:
    """Vectors of any length, their reciprocal lengths (0 for zero vectors), and float32 vectors of length 1 (`units`).

    `errors` bounds the rounding errors of float32 products of units (Higham 2002, section 3.1), with some reserve.
    """

    def __init__(self, vectors: Array) -> None:
        np, self.vectors = import_numpy(), vectors
        lengths = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1))
        self.reciprocals = np.divide(1, lengths, out=np.zeros(len(vectors)), where=lengths > 0)
        self.units = np.empty(vectors.shape, np.float32)
        np.multiply(vectors, self.reciprocals[:, None], out=self.units, casting="same_kind")
        self.errors = (lengths > 0) * (vectors.shape[1] + 32) * 2.0**-24  # unit roundoff of float32


class _Shard:
    """All queries and a part of the codes. `cosines` contains a matrix of float32 cosines for each searcher."""

    def __init__(self, start: int, queries: Sequence[_Scaled], codes: Sequence[_Scaled]) -> None:
        self.start, self.queries, self.codes = start, queries, codes
        self.cosines = [a.units @ b.units.T for a, b in zip(queries, codes, strict=True)]

    def iterate_exact(self, selected: Array, searchers: Sequence[int]) -> Iterator[tuple[Array, Array, Array]]:
        """Iterate over selected pairs in chunks: their queries, codes and float64 cosines (a column for each searcher).

        Unlike in a matrix product, the order of summation does not depend on the position of a pair.
        """
        np, pairs = import_numpy(), import_numpy().flatnonzero(selected)
        for start in range(0, len(pairs), _CHUNK_PAIRS):
            rows, columns = np.divmod(pairs[start : start + _CHUNK_PAIRS], selected.shape[1])
            exact = np.empty((len(rows), len(searchers)))
            for number, searcher in enumerate(searchers):
                a, b = self.queries[searcher], self.codes[searcher]
                products = np.multiply(a.vectors[rows], b.vectors[columns], dtype=np.float64).sum(axis=1)
                exact[:, number] = products * a.reciprocals[rows] * b.reciprocals[columns]
            yield rows, columns, exact


def _iterate_shards(
    searchers: Sequence[Vectors], queries: Sequence[_Scaled], codes: int, step: str, progress: Progress
) -> Iterator[_Shard]:
    size = max(1, min(_MAX_CODES, _MAX_SCORES // len(queries[0].vectors)))
    for start in range(0, codes, size):
        stop = min(start + size, codes)
        yield _Shard(start, queries, [_Scaled(searcher.read_codes(start, stop)) for searcher in searchers])
        progress(step, stop, codes)


def _update_maxima(maxima: Array, shard: _Shard) -> None:
    """Update the largest absolute cosines, an array of shape (queries, searchers)."""
    np = import_numpy()
    for searcher, cosines in enumerate(shard.cosines):
        sizes, errors = np.abs(cosines), shard.queries[searcher].errors
        limits = np.where(errors > 0, np.maximum(maxima[:, searcher], sizes.max(axis=1)) - 2 * errors, np.inf)
        for rows, _, exact in shard.iterate_exact(sizes >= limits[:, None].astype(np.float32), [searcher]):
            np.maximum.at(maxima[:, searcher], rows, np.abs(exact[:, 0]))


def _update_best(best: BestCodes, shard: _Shard, searchers: Sequence[int], weights: Array) -> None:
    """Merge the codes in a shard by weighted sums of some searchers' cosines. `weights` has a column for each."""
    np, top = import_numpy(), best.positions.shape[1]
    parts = zip(searchers, weights.T, strict=True)
    scores = sum(shard.cosines[searcher] * column[:, None].astype(np.float32) for searcher, column in parts)
    errors = (weights * np.stack([shard.queries[searcher].errors for searcher in searchers], axis=1)).sum(axis=1)
    scores[errors == 0, max(0, top - shard.start) :] = -np.inf  # if all scores are 0, the first codes are the best
    limits = best.scores[:, -1]
    if (last := scores.shape[1] - top) > 0 and np.isneginf(limits).any():
        limits = np.maximum(limits, np.partition(scores, last, axis=1)[:, last])
    limits = limits - 2 * errors - 10.0**-_DECIMALS  # the limit and the score have one error each, and are rounded
    for rows, columns, exact in shard.iterate_exact(scores >= limits[:, None].astype(np.float32), searchers):
        sums = (exact * weights[rows]).sum(axis=1).round(_DECIMALS)
        best.merge(rows, columns + shard.start, sums + 0.0, exact)  # -0.0 becomes 0.0


def cut_ranking(result: SearchResult) -> tuple[Array, Array]:
    """Return the positions (int32) and scores (float32) of the best 1,000 codes. Ties are sorted by position."""
    order = import_numpy().lexsort((result.positions, -result.scores))[:RRF_DEPTH]
    return result.positions[order].astype("int32"), result.scores[order].astype("float32")


def fuse_ranks(rankings: Mapping[str, Sequence[tuple[Array, Array]]], top: int) -> Proposals:
    """Propose the `top` codes with the highest sum of 1 / (60 + rank) over all searchers (Cormack et al. 2009).

    `rankings` contains the result of `cut_ranking` for each query. Codes without a rank are not proposed.
    """
    np, queries = import_numpy(), len(next(iter(rankings.values())))
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
