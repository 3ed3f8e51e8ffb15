"""BM25, by bm25s."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.errors import ExtraMissing
from agent.retrieval.searchers.base import Progress, SearchResult, best_codes, report_each
from agent.retrieval.searchers.tokens import tokens
from agent.retrieval.searchers.vectors import DECIMALS, too_few_words


class BM25:
    """BM25 as bm25s (Lù 2024) scores it by its method `lucene` (of Kamphuis et al. 2020: "Lucene (accurate)").

    The score is the sum over the words t of a query, one that stands there twice counting twice, of

        ln(1 + (N − df(t) + 0.5) / (df(t) + 0.5)) · tf(t, d) / (tf(t, d) + k1 · (1 − b + b · |d| / avgdl))

    with N codes, of which df(t) have the word, |d| words in code d and avgdl in the mean. `bm25` has the parameters
    that bm25s has by default; `bm25-lucene` those of Lucene's BM25Similarity, except that Lucene keeps |d| in one byte.
    """

    def __init__(self, name: str, about: str, *, method: str = "lucene", k1: float = 1.5, b: float = 0.75) -> None:
        self.name, self.about = name, about
        self.settings: Mapping[str, Any] = {"method": method, "k1": k1, "b": b}

    def index(self, codes: Sequence[str], progress: Progress) -> None:
        """See `Searcher`."""
        try:
            import bm25s
        except ImportError as error:
            raise ExtraMissing("retrieval", error) from error
        numbers: defaultdict[str, int] = defaultdict(lambda: len(numbers))
        texts = report_each(codes, "reading words", progress)
        documents = [array("i", [numbers[token] for token in tokens(text)]) for text in texts]
        if not numbers:
            raise too_few_words(self.name, codes)
        self.numbers = dict(numbers)
        self.scorer = bm25s.BM25(**self.settings, dtype="float64", csc_backend="scipy")
        self.scorer.index((documents, self.numbers), create_empty_token=False, show_progress=False)

    def search(self, queries: Sequence[str], depth: int, progress: Progress) -> Iterator[SearchResult]:
        """See `Searcher`."""
        for query in report_each(queries, "searching", progress):
            known = [self.numbers[token] for token in tokens(query) if token in self.numbers]
            yield best_codes(self.scorer.get_scores_from_ids(known).round(DECIMALS), depth, above=0)
