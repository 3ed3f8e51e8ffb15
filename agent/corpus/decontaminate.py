"""Removes pairs that overlap with benchmarks, as in section 3.5 and Table 13 of the ProCQA paper."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import Literal, NamedTuple

from agent.corpus.near_duplicates import NearDuplicateIndex, shingle_code
from agent.corpus.output import CorpusWriter
from agent.datasets.benchmark import Benchmark
from agent.datasets.fields import KNOWN
from agent.retrieval.code_views import split_docstring
from agent.types import Pair, Progress

MIN_WORDS = 3
"""Minimum number of words in a benchmark query. Pairs may contain shorter queries by chance."""
REASONS = "query", "code", "near-duplicate code"  # if several apply to a pair, the first one is reported

_WORD = re.compile(r"[^\W_]+")
_COUNTS = "short_queries", "contaminated_queries", "contaminated_codes", "matching_pairs"


class _Item(NamedTuple):
    benchmark: str
    id: str
    kind: Literal["queries", "codes"]
    text: str


class Decontaminator:
    """Finds pairs that overlap with benchmarks. Keeps the benchmarks' queries and snippets in memory.

    `overlaps` maps the name of each benchmark to counts. `queries`, `codes` and `short_queries`, which are too short to
    match, describe the benchmark. `contaminated_queries` and `contaminated_codes` match a pair. Table 13's first column
    is `contaminated_queries` divided by `queries`. `matching_pairs` match the benchmark, and may match others as well.

    Raises:
        ExtraMissing: `datasketch` is not installed.
    """

    def __init__(self) -> None:
        self.overlaps: dict[str, dict[str, int]] = {}
        self._queries = defaultdict[str, list[_Item]](list)
        self._longest = 0  # number of words
        self._index = NearDuplicateIndex()
        self._codes: list[_Item] = []  # in the order of the index
        self._contaminated = set[_Item]()

    def add(self, name: str, benchmark: Benchmark, progress: Progress) -> None:
        """Add a benchmark before the first pair is checked. The id of an answer is the id of its query."""
        codes = [*benchmark.codes.items(), *benchmark.answers.items()]
        self.overlaps[name] = {"queries": len(benchmark.queries), "codes": len(codes), **dict.fromkeys(_COUNTS, 0)}
        for identifier, query in benchmark.queries.items():
            words = _WORD.findall(query.lower())
            self.overlaps[name]["short_queries"] += len(words) < MIN_WORDS
            self._longest = max(self._longest, len(words))
            self._queries[" ".join(words)].append(_Item(name, identifier, "queries", query))
        for number, (identifier, code) in enumerate(codes, start=1):
            self._index.add(shingle_code(code))
            self._codes.append(_Item(name, identifier, "codes", code))
            progress(f"indexing {name}", number, len(codes))

    def check(self, pair: Pair) -> dict[str, str]:
        """Return the first match of the pair, or {} to keep the pair.

        The fields are `removed_by`, `benchmark`, `matched_id`, and `matched_query` or `matched_code`. A snippet without
        a query is checked with and without its docstring, whose first sentence is the query, as in training.
        """
        query = pair.query
        codes = [_strip_lines(pair.code)]
        if not query and (parts := split_docstring(pair.code, pair.language, pair.meta)):
            query = parts[0]
            codes.append(_strip_lines(parts[1]))
        queries = self._find_queries(query)
        numbers = chain(*(self._index.find_all(shingle_code(own)) for own in codes))
        similar = [self._codes[number] for number in dict.fromkeys(numbers)]
        equal = [item for item in similar if _strip_lines(item.text) in codes]
        items = {*queries, *similar}
        for name in {item.benchmark for item in items}:
            self.overlaps[name]["matching_pairs"] += 1
        for item in items - self._contaminated:
            self.overlaps[item.benchmark][f"contaminated_{item.kind}"] += 1
        self._contaminated |= items
        for reason, matches in zip(REASONS, (queries, equal, similar), strict=True):
            if matches:
                name, identifier, kind, text = matches[0]
                field = "matched_query" if kind == "queries" else "matched_code"
                return {"removed_by": reason, "benchmark": name, "matched_id": identifier, field: text}
        return {}

    def _find_queries(self, query: str) -> list[_Item]:
        words = _WORD.findall(query.lower())
        lengths = range(MIN_WORDS, min(len(words), self._longest) + 1)
        parts = (" ".join(words[i : i + length]) for length in lengths for i in range(len(words) - length + 1))
        return [item for part in parts for item in self._queries.get(part, ())]


def remove_overlap(pairs: Sequence[Pair], finder: Decontaminator, writer: CorpusWriter, progress: Progress) -> None:
    """Write the kept and the removed pairs. Fields of `meta` are written beside the other fields of a pair."""
    for number, pair in enumerate(pairs, start=1):
        excluded = {"meta"} if pair.query else {"meta", "query"}
        own = pair.model_dump(exclude=excluded, exclude_none=True)
        nested = {name: pair.meta[name] for name in (*KNOWN, *own, "meta") if name in pair.meta}  # names of pair fields
        flat = {name: value for name, value in pair.meta.items() if name not in nested}
        record = own | flat | ({"meta": nested} if nested else {})
        if removal := finder.check(pair):
            writer.remove(removal["removed_by"], record | removal)
        else:
            writer.keep(record)
        progress("checking pairs", number, len(pairs))


def _strip_lines(code: str) -> str:
    """Remove white space at the ends of the code and of its lines, and use one kind of line break."""
    return "\n".join(line.rstrip() for line in code.strip().splitlines())
