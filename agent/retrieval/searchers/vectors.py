"""Searchers that compare vectors of words by their cosine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from agent.errors import ExtraMissing, UsageError
from agent.retrieval.searchers.base import Found, Progress, best
from agent.retrieval.searchers.tokens import tokens

CELLS = 20_000_000
"""How many scores are held at once: batches of queries are of this size divided by the number of codes."""
DECIMALS = 12
"""Scores are rounded to these, so that codes whose scores differ only by the rounding of their sums tie."""


def counted(texts: Sequence[str], what: str, progress: Progress) -> Iterable[str]:
    """Yield texts, telling every thousandth."""
    for number, text in enumerate(texts):
        if number % 1000 == 0:
            progress(what, number, len(texts))
        yield text
    progress(what, len(texts), len(texts))


class BagOfWords:
    """The cosine of the counts of words in query and code."""

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about = name, about
        self.settings: Mapping[str, Any] = {"weights": "counts"}

    def _vectorizer(self) -> Any:
        try:
            from sklearn.feature_extraction.text import CountVectorizer
        except ImportError as error:
            raise ExtraMissing("retrieval", error) from error
        return CountVectorizer(analyzer=tokens)

    def index(self, codes: Sequence[str], progress: Progress) -> None:
        """See `Searcher`."""
        self.vectorizer = self._vectorizer()
        try:
            counts = self.vectorizer.fit_transform(counted(codes, "counting words", progress))
        except ValueError as error:
            raise UsageError(
                f"{self.name} cannot search these {len(codes)} codes: no word is in any of them"
            ) from error
        self.by_word = _unit(counts).T.tocsr()

    def search(self, queries: Sequence[str], depth: int, progress: Progress) -> Iterator[Found]:
        """See `Searcher`."""
        size = max(1, CELLS // self.by_word.shape[1])
        for start in range(0, len(queries), size):
            progress("searching", start, len(queries))
            batch = _unit(self.vectorizer.transform(queries[start : start + size]))
            for row in _rows(batch @ self.by_word):
                yield _found(row, depth)
        progress("searching", len(queries), len(queries))


def _unit(matrix: Any) -> Any:
    from sklearn.preprocessing import normalize

    return normalize(matrix.astype("float64"))


def _rows(matrix: Any) -> Iterator[Any]:
    for row in range(matrix.shape[0]):
        yield matrix[[row]].sorted_indices()


def _found(row: Any, depth: int) -> Found:
    found = best(row.data.round(DECIMALS), depth, above=0)
    return Found(row.indices[found.positions].astype("int64"), found.scores)
