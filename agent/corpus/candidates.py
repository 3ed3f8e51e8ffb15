"""Proposes candidate pairs: reads texts, runs the searchers, and applies the rules of `CandidateRules`.

Searchers are combined by exact weighted sums of cosine similarities, or by reciprocal rank fusion. Snippets are
compared in shards, so memory does not grow with their number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isnan
from pathlib import Path
from sys import intern
from typing import Any, Literal, NamedTuple

from agent.corpus.output import CorpusWriter
from agent.datasets.benchmarks.building import read_rows
from agent.datasets.encoding import dumps, loads
from agent.datasets.fields import CODES, QUERIES, FieldMap, Fields
from agent.errors import InputError, UsageError
from agent.evaluation.lazy_numpy import np
from agent.retrieval.rankings import encode_id
from agent.retrieval.searchers.base import SearchResult, Vectors
from agent.types import Origin, Progress

Array = Any  # a NumPy array
# Scores are rounded, so that snippets tie if their scores differ only by rounding errors: weighted sums of cosines to
# `_DECIMALS`, sums of reciprocal ranks to `_RANK_DECIMALS` (for two searchers, distinct sums differ by over 7e-13).
_DECIMALS = 7
_RANK_DECIMALS = 15
_MAX_CODES, _MAX_SCORES = 4_096, 4_000_000  # per shard and searcher
RRF_DEPTH = 1_000
_RRF_CONSTANT = 60


class BestCodes:
    """The best snippets for each query, best first. Snippets with equal scores are sorted by position.

    If a query has fewer than `top` snippets, its last positions are -1. `parts` has shape (queries, top, searchers). It
    contains the score of each searcher, or NaN if the searcher did not retrieve the snippet.
    """

    def __init__(self, queries: int, top: int, searchers: int) -> None:
        shape = (queries, top)
        self.positions = np.full(shape, -1, np.int32)
        self.scores = np.full(shape, -np.inf)
        self.parts = np.full((queries, top, searchers), np.nan)

    def merge(self, queries: Array, positions: Array, scores: Array, parts: Array) -> None:
        """Add a snippet for each number in `queries`, and keep the best snippets."""
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
    """The snippets that an ensemble of searchers proposes, and the positions of each searcher's own best snippets."""

    best: BestCodes
    own: Mapping[str, Array]

    def measure_overlap(self) -> dict[str, dict[str, float]]:
        """Compare each searcher's own snippets with the ensemble's, pooled over all queries (Table I of CoSQA+).

        `share` is the part of the searcher's snippets that the ensemble chose. `jaccard` is the Jaccard similarity.
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
    """Propose the `top` snippets with the highest weighted sums of cosines. Zero vectors have cosine 0 with all others.

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
    """Iterate over shards: the position of the first snippet, and the cosines of each searcher (queries × snippets)."""
    size = max(1, min(_MAX_CODES, _MAX_SCORES // len(queries[0])))
    for start in range(0, codes, size):
        stop = min(start + size, codes)
        pairs = zip(searchers, queries, strict=True)
        yield start, [units @ _normalise(searcher.read_codes(start, stop)).T for searcher, units in pairs]
        progress(step, stop, codes)


def _merge_shard(best: BestCodes, start: int, scores: Array, parts: Sequence[Array]) -> None:
    """Merge the best snippets in a shard. `scores` and each of `parts` have shape (queries, snippets)."""
    top = best.positions.shape[1]
    scores = scores.round(_DECIMALS) + 0.0  # -0.0 becomes 0.0
    limits = best.scores[:, -1:]
    is_better = scores > limits  # a snippet that ties with an earlier one is not better
    if (last := scores.shape[1] - top) > 0 and np.isneginf(limits).any():
        is_better &= scores >= np.partition(scores, last, axis=1)[:, last, None]
    rows, columns = np.nonzero(is_better)
    best.merge(rows, columns + start, scores[rows, columns], np.stack([p[rows, columns] for p in parts], axis=1))


def cut_ranking(result: SearchResult) -> tuple[Array, Array]:
    """Return the positions (int32) and scores (float32) of the best 1,000 snippets. Ties are sorted by position."""
    order = np.lexsort((result.positions, -result.scores))[:RRF_DEPTH]
    return result.positions[order].astype("int32"), result.scores[order].astype("float32")


def fuse_ranks(rankings: Mapping[str, Sequence[tuple[Array, Array]]], top: int) -> Proposals:
    """Propose the `top` snippets with the highest sum of 1 / (60 + rank) over all searchers (Cormack et al. 2009).

    `rankings` contains the result of `cut_ranking` for each query. Snippets without a rank are not proposed.
    """
    queries = len(next(iter(rankings.values())))
    best = BestCodes(queries, top, len(rankings))
    own = {name: np.full((queries, top), -1, np.int32) for name in rankings}
    for query, results in enumerate(zip(*rankings.values(), strict=True)):
        positions = np.unique(np.concatenate([ranked for ranked, _ in results]))
        parts = np.full((len(positions), len(results)), np.nan)
        sums = np.zeros(len(positions))
        for searcher, (name, (ranked, scores)) in enumerate(zip(rankings, results, strict=True)):
            places = np.searchsorted(positions, ranked)
            sums[places] += 1 / (_RRF_CONSTANT + 1 + np.arange(len(ranked)))
            parts[places, searcher] = scores
            own[name][query, : len(ranked)] = ranked[:top]
        best.merge(np.full(len(positions), query), positions, sums.round(_RANK_DECIMALS), parts)
    return Proposals(best, own)


_FIELDS = ("cluster", "repository", "licence", "language")
_ORIGIN = ("repository", "commit", "module", "path", "lines", "class", "name")


@dataclass(frozen=True)
class CandidateRules:
    """Rules for pairs: the number of snippets for each query, the minimum mean cosine, and how often to use a snippet.

    In CoSQA, `top` is 1, `min_similarity` is 0.5 and `max_uses` is 10. Only `mean` allows `min_similarity`. `pilot` is
    the number of queries to draw at random; by default, all queries are used.
    """

    combine: Literal["mean", "repository", "rrf"] = "mean"
    top: int = 20
    min_similarity: float | None = None
    max_uses: int | None = None
    pilot: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.min_similarity is not None and self.combine != "mean":
            raise UsageError(f"--min-similarity requires --combine mean. The scores of {self.combine} are not cosines.")


class Item(NamedTuple):
    """A query or a snippet. `meta` contains the optional fields of a snippet, such as its repository.

    `origin` contains the origin of a snippet as JSON, or is empty if the origin is unknown.
    """

    id: str
    text: str
    language: str
    meta: dict[str, str]
    origin: bytes = b""


def read_items(path: Path, kind: Literal["query", "code"], mapping: FieldMap = None) -> list[Item]:
    """Read the queries or the snippets in a file. A file without the fields of `mapping` may have the usual names.

    Raises:
        InputError: the file cannot be read or is empty, a field is missing or blank, or an id is repeated.
        ExtraMissing: the libraries for the file's format are not installed.
    """
    items = dict[str, Item]()
    names = Fields(mapping, CODES if kind == "code" else QUERIES, optional=True).names
    for row in read_rows(path):
        identifier = row.get_id(*names["id"])
        if identifier in items:
            raise row.build_error(f"the id {identifier[:60]!r} is used twice. Ids must be unique")
        present = (name for name in _FIELDS if kind == "code" and row.fields.get(name) not in (None, ""))
        fields = {name: intern(row.get_id(name)) for name in present}
        language = fields.pop("language", "python")
        origin = _encode_origin(row.fields) if kind == "code" else b""
        items[identifier] = Item(identifier, row.get_text(*names[kind]), language, fields, origin)
    if not items:
        raise InputError("the file is empty", path=path)
    return list(items.values())


def _encode_origin(fields: Mapping[str, Any]) -> bytes:
    is_known = all(fields.get(name) for name in ("repository", "commit", "name"))
    origin = Origin.parse({name: fields.get(name) for name in _ORIGIN}) if is_known else None
    return b"" if origin is None else dumps(origin.model_dump(exclude_none=True))


def propose_codes(
    searchers: list[Any], queries: Sequence[str], codes: Sequence[str], rules: CandidateRules, progress: Progress
) -> tuple[Proposals, list[str]]:
    """Propose snippets for each query. Also return the notes of the searchers.

    Empties the list of searchers, so that only one model is in memory at a time. Unless `combine` is `rrf`, each
    searcher must be a `CosineSearcher`.

    Raises:
        ExtraMissing, UsageError, StorageError, RunStopped: see `Searcher.index`.
    """
    results = dict[str, Any]()
    notes = list[str]()
    top = min(rules.top, len(codes))
    while searchers:
        name = searchers[0].name
        searcher = searchers.pop(0)
        report = partial(lambda name, step, *amounts: progress(f"{name}: {step}", *amounts), name)
        if rules.combine == "rrf":
            searcher.index(codes, report)
            results[name] = [cut_ranking(result) for result in searcher.search(queries, RRF_DEPTH, report)]
        else:
            results[name] = searcher.embed(codes, queries, report)
        notes += [f"{name}: {note}" for note in getattr(searcher, "notes", ())]
        del searcher
    if rules.combine == "rrf":
        return fuse_ranks(results, top), notes
    return combine_cosines(results, len(codes), top, rules.combine, progress), notes


def write_pairs(
    writer: CorpusWriter, queries: Iterable[Item], codes: Sequence[Item], proposals: Proposals, rules: CandidateRules
) -> tuple[Counter[int], list[str]]:
    """Write the pairs that meet the rules. Return the uses of each used snippet, and the queries without pairs."""
    uses = Counter[int]()
    unanswered = list[str]()
    best = proposals.best
    tables = best.positions, best.scores, best.parts.round(7) + 0.0, _find_removed(best, rules)
    for query, *rows in zip(queries, *tables, strict=True):
        before = writer.kept
        for rank, (position, score, parts, reason) in enumerate(zip(*(row.tolist() for row in rows), strict=True), 1):
            if position < 0:
                break
            code = codes[position]
            ids = {"query_id": query.id, "code_id": code.id}
            if reason:
                writer.remove(reason, {**ids, "rank": rank, "score": score})
                continue
            identifier = "/".join(encode_id(name).replace("/", "%2F") for name in ids.values())
            pair: dict[str, Any] = {"id": identifier, "query": query.text, "code": code.text, "language": code.language}
            pair |= {"origin": loads(code.origin)} if code.origin else {}
            scores = {name: part for name, part in zip(proposals.own, parts, strict=True) if not isnan(part)}
            writer.keep({**pair, "meta": {**ids, **code.meta, "rank": rank, "score": score, "scores": scores}})
            uses[position] += 1
        if writer.kept == before:
            unanswered.append(query.id)
    return uses, unanswered


def _find_removed(best: BestCodes, rules: CandidateRules) -> Any:
    """Return the name of the rule that removes each pair, or an empty text."""
    reasons = np.full(best.scores.shape, "", "U14")
    if rules.min_similarity is not None:
        reasons[best.scores < rules.min_similarity] = "min-similarity"
    if rules.max_uses is not None:
        rows, ranks = np.nonzero((best.positions >= 0) & (reasons == ""))
        positions = best.positions[rows, ranks]
        order = np.lexsort((rows, -best.scores[rows, ranks], positions))
        uses = np.arange(len(order)) - np.searchsorted(positions[order], positions[order])
        excess = order[uses >= rules.max_uses]
        reasons[rows[excess], ranks[excess]] = "max-uses"
    return reasons
