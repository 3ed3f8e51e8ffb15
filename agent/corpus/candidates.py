"""Proposes candidate pairs: reads queries and codes, runs the searchers, and applies the rules of `CandidateRules`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import isnan
from pathlib import Path
from sys import intern
from typing import Any, Literal, NamedTuple

from agent.corpus.combine import RRF_DEPTH, BestCodes, Proposals, combine_cosines, cut_ranking, fuse_ranks
from agent.corpus.output import CorpusWriter
from agent.datasets.benchmarks.building import read_rows
from agent.datasets.fields import CODES, QUERIES, FieldMap, Fields
from agent.errors import InputError, UsageError
from agent.evaluation.lazy_numpy import np
from agent.retrieval.rankings import encode_id
from agent.types import Progress

_FIELDS = ("cluster", "repository", "licence", "language")


@dataclass(frozen=True)
class CandidateRules:
    """Rules for pairs: the number of codes for each query, the minimum mean cosine, and the maximum uses of a code.

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
    """A query or a code. `meta` contains the optional fields of a code, such as its repository."""

    id: str
    text: str
    language: str
    meta: dict[str, str]


def read_items(path: Path, kind: Literal["query", "code"], mapping: FieldMap = None) -> list[Item]:
    """Read the queries or the codes in a file. A file without the fields of `mapping` may have the usual names.

    Raises:
        InputError: the file cannot be read or is empty, a field is missing or blank, or an id is repeated.
        ExtraMissing: the libraries for the file's format are not installed.
    """
    items, names = dict[str, Item](), Fields(mapping, CODES if kind == "code" else QUERIES, optional=True).names
    for row in read_rows(path):
        identifier = row.get_id(*names["id"])
        if identifier in items:
            raise row.build_error(f"the id {identifier[:60]!r} is used twice. Ids must be unique")
        present = (name for name in _FIELDS if kind == "code" and row.fields.get(name) not in (None, ""))
        fields = {name: intern(row.get_id(name)) for name in present}
        language = fields.pop("language", "python")
        items[identifier] = Item(identifier, row.get_text(*names[kind]), language, fields)
    if not items:
        raise InputError("the file is empty", path=path)
    return list(items.values())


def propose_codes(
    searchers: list[Any], queries: Sequence[str], codes: Sequence[str], rules: CandidateRules, progress: Progress
) -> tuple[Proposals, list[str]]:
    """Propose codes for each query. Also return the notes of the searchers.

    Empties the list of searchers, so that only one model is in memory at a time. Unless `combine` is `rrf`, each
    searcher must be a `CosineSearcher`.

    Raises:
        ExtraMissing, UsageError, StorageError, RunStopped: see `Searcher.index`.
    """
    results, notes, top = dict[str, Any](), list[str](), min(rules.top, len(codes))
    while searchers:
        name, searcher = searchers[0].name, searchers.pop(0)
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
    """Write the pairs that meet the rules. Return the uses of each used code, and the ids of queries without pairs."""
    uses, unanswered, best = Counter[int](), list[str](), proposals.best
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
            pair = {"id": identifier, "query": query.text, "code": code.text, "language": code.language}
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
