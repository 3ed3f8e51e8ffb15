"""Removes pairs that overlap with benchmarks, as in section 3.5 and Table 13 of the ProCQA paper."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from agent.corpus.near_duplicates import NearDuplicateIndex, shingle_code
from agent.corpus.output import CorpusWriter
from agent.datasets.benchmark import Benchmark
from agent.datasets.fields import KNOWN
from agent.retrieval.searchers.base import Progress
from agent.scratch import as_key
from agent.types import Pair

MIN_WORDS = 3
"""Minimum number of words in a benchmark query. Pairs may contain shorter queries by chance."""
REASONS = "query", "code", "near-duplicate code"  # if several apply to a pair, the first one is reported

_WORD = re.compile(r"[^\W_]+")


@dataclass
class Overlap:
    """Overlap of the pairs with one benchmark.

    Contaminated items match a pair. Table 13's first column is contaminated queries divided by all queries, including
    `short_queries`, which are too short to match. A pair that matches several benchmarks counts for each of them.
    """

    benchmark: str
    queries: int
    codes: int
    short_queries: int = 0
    contaminated_queries: int = 0
    contaminated_codes: int = 0
    matching_pairs: int = 0


class _Item(NamedTuple):
    """A query or a code. Items sort by benchmark, and then by their position in the benchmark."""

    benchmark: int
    position: int
    id: str
    query: str = ""


class Decontaminator:
    """Finds pairs that overlap with benchmarks. Keeps the benchmarks' queries in memory, but only hashes of codes.

    `overlaps` has one entry per benchmark. Raises `ExtraMissing` without `datasketch`.
    """

    def __init__(self) -> None:
        self.overlaps: list[Overlap] = []
        self._queries = defaultdict[str, list[_Item]](list)
        self._lengths = defaultdict[str, set[int]](set)  # of the queries that start with these MIN_WORDS words
        self._index = NearDuplicateIndex()
        self._keys: list[bytes] = []  # of the codes in the index
        self._codes = defaultdict[bytes, list[_Item]](list)
        self._contaminated: set[_Item] = set()
        self._matches: dict[bytes, tuple[Sequence[_Item], Sequence[_Item]]] = {}

    def add(self, name: str, benchmark: Benchmark, progress: Progress) -> None:
        """Add a benchmark before the first pair is checked. The id of an answer is the id of its query."""
        codes = [*benchmark.codes.items(), *benchmark.answers.items()]
        number, overlap = len(self.overlaps), Overlap(name, len(benchmark.queries), len(codes))
        self.overlaps.append(overlap)
        for position, (identifier, query) in enumerate(benchmark.queries.items()):
            words = _WORD.findall(query.lower())
            overlap.short_queries += len(words) < MIN_WORDS
            self._lengths[" ".join(words[:MIN_WORDS])].add(len(words))
            self._queries[" ".join(words)].append(_Item(number, position, identifier, query))
        for position, (identifier, code) in enumerate(codes):
            if (key := _hash_code(code)) not in self._codes:
                self._index.add(shingle_code(code))
                self._keys.append(key)
            self._codes[key].append(_Item(number, position, identifier))
            progress(f"indexing {name}", position + 1, len(codes))

    def check(self, pair: Pair) -> dict[str, str]:
        """Return `removed_by`, `benchmark`, `matched_id` and, for a query, `matched_query`, or {} to keep the pair."""
        queries, (equal, similar) = self._find_queries(pair.query), self._find_codes(pair.code)
        for number in {item.benchmark for item in (*queries, *similar)}:
            self.overlaps[number].matching_pairs += 1
        for item in {*queries, *similar} - self._contaminated:
            self.overlaps[item.benchmark].contaminated_queries += item.query != ""
            self.overlaps[item.benchmark].contaminated_codes += item.query == ""
        self._contaminated.update(queries, similar)
        for reason, items in zip(REASONS, (queries, equal, similar), strict=True):
            if items:
                match = {"benchmark": self.overlaps[items[0].benchmark].benchmark, "matched_id": items[0].id}
                return {"removed_by": reason, **match, **({"matched_query": items[0].query} if queries else {})}
        return {}

    def _find_queries(self, query: str) -> Sequence[_Item]:
        words, items = _WORD.findall(query.lower()), set[_Item]()
        for start in range(len(words) - MIN_WORDS + 1):
            for length in self._lengths.get(" ".join(words[start : start + MIN_WORDS]), ()):
                items.update(self._queries.get(" ".join(words[start : start + length]), ()))
        return sorted(items)

    def _find_codes(self, code: str) -> tuple[Sequence[_Item], Sequence[_Item]]:
        """Return the equal codes, and the similar codes, which include the equal ones."""
        if (key := _hash_code(code)) not in self._matches:
            numbers = self._index.find_all(shingle_code(code))
            similar = sorted(item for number in numbers for item in self._codes[self._keys[number]])
            self._matches[key] = self._codes.get(key, ()), similar
        return self._matches[key]


def remove_overlap(pairs: Sequence[Pair], finder: Decontaminator, writer: CorpusWriter, progress: Progress) -> None:
    """Write the kept and the removed pairs. Fields of `meta` are written beside the other fields of a pair."""
    for number, pair in enumerate(pairs, start=1):
        nested = {name: pair.meta[name] for name in (*KNOWN, "meta") if name in pair.meta}  # names of pair fields
        flat = {name: value for name, value in pair.meta.items() if name not in nested}
        record = pair.model_dump(exclude={"meta"}, exclude_none=True) | flat | ({"meta": nested} if nested else {})
        removal = finder.check(pair)
        writer.remove(removal["removed_by"], record | removal) if removal else writer.keep(record)
        progress("checking pairs", number, len(pairs))


def _hash_code(code: str) -> bytes:
    """Hash a code without white space at the ends of the code and of its lines. Line breaks are equal."""
    return blake2b(as_key("\n".join(line.rstrip() for line in code.strip().splitlines())), digest_size=16).digest()
