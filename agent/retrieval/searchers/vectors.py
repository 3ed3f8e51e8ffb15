"""Searchers that compare vectors by their cosine: counts of words, tf-idf, and latent semantic analysis (LSA)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from agent.errors import ExtraMissing, UsageError
from agent.evaluation.statistics import numpy
from agent.retrieval.searchers.base import Progress, SearchResult, best_codes, report_each
from agent.retrieval.searchers.tokens import tokens

# How many scores are held at once: a batch has as many queries as this divided by the number of codes.
CELLS = 20_000_000
# Scores are rounded to these, so that codes whose scores differ only by the rounding of sums tie: those of sparse
# vectors, held in 64 bits, and those of dense ones, held in 32.
DECIMALS, DENSE_DECIMALS = 12, 6


def too_few_words(name: str, codes: Sequence[str]) -> UsageError:
    """Return the error for codes without words to search by."""
    return UsageError(f"{name} cannot search these {len(codes)} codes: too few words are in them")


def tfidf(vocabulary: Mapping[str, int] | None = None) -> Any:
    """Return scikit-learn's TfidfVectorizer of our words, as it is by default.

    The weight of word t in text d is tf(t, d) · idf(t), with the count tf and idf(t) = ln((1 + n) / (1 + df(t))) + 1 of
    n codes, of which df(t) have the word; vectors are of length 1.
    """
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
    except ImportError as error:
        raise ExtraMissing("retrieval", error) from error
    return TfidfVectorizer(analyzer=tokens, vocabulary=vocabulary)


def unit(matrix: Any) -> Any:
    """Return a matrix (sparse or dense) with rows of length 1; rows of zeros stay."""
    from sklearn.preprocessing import normalize

    return normalize(matrix)


def _batches(queries: Sequence[str], codes: int, progress: Progress) -> Iterator[Sequence[str]]:
    """Yield queries in batches whose scores fit into memory."""
    size = max(1, CELLS // codes)
    for start in range(0, len(queries), size):
        yield queries[start : start + size]
        progress("searching", min(start + size, len(queries)), len(queries))


def nearest(
    codes: Any, queries: Sequence[str], vectors_of: Callable[[Sequence[str]], Any], depth: int, progress: Progress
) -> Iterator[SearchResult]:
    """Yield the codes of highest cosine for each query; `codes` are vectors of length 1 in rows, in float32.

    A vector of zeros finds nothing and is not found.
    """
    np = numpy()
    empty = ~codes.any(axis=1)
    for batch in _batches(queries, len(codes), progress):
        vectors = unit(vectors_of(batch))
        for scores, known in zip(vectors @ codes.T, vectors.any(axis=1), strict=True):
            rounded = scores.astype(np.float64).round(DENSE_DECIMALS)
            rounded[empty | ~known] = -np.inf
            yield best_codes(rounded, depth)


class Words:
    """The cosine of sparse vectors of words: their counts (bag of words), or tf-idf as scikit-learn defines it.

    Codes without a word of the query are not found; words of the query that no code has count for nothing.
    """

    def __init__(self, name: str, about: str, *, weights: str = "counts") -> None:
        self.name, self.about = name, about
        self.settings: Mapping[str, Any] = {"weights": weights}

    def index(self, codes: Sequence[str], progress: Progress) -> None:
        """See `Searcher`."""
        self.vectorizer = tfidf().set_params(use_idf=self.settings["weights"] == "tf-idf")
        try:
            vectors = self.vectorizer.fit_transform(report_each(codes, "counting words", progress))
        except ValueError as error:
            raise too_few_words(self.name, codes) from error
        self.by_word = vectors.T.tocsr()

    def search(self, queries: Sequence[str], depth: int, progress: Progress) -> Iterator[SearchResult]:
        """See `Searcher`."""
        for batch in _batches(queries, self.by_word.shape[1], progress):
            scores = (self.vectorizer.transform(batch) @ self.by_word).sorted_indices()
            for start, end in zip(scores.indptr, scores.indptr[1:], strict=False):
                result = best_codes(scores.data[start:end].round(DECIMALS), depth, above=0)
                yield SearchResult(scores.indices[start:end][result.positions].astype("int64"), result.scores)


class Lsa:
    """Latent semantic analysis (Deerwester et al. 1990): the cosine after scikit-learn's TruncatedSVD of tf-idf.

    Every code that has a word is found for every query that has one. Dimensions, at most as many as words or codes,
    and seed are our choice.
    """

    def __init__(self, name: str, about: str, *, dimensions: int = 300, seed: int = 0) -> None:
        self.name, self.about = name, about
        self.settings: Mapping[str, Any] = {"dimensions": dimensions, "seed": seed}
        self.notes: tuple[str, ...] = ()

    def index(self, codes: Sequence[str], progress: Progress) -> None:
        """See `Searcher`."""
        self.vectorizer = tfidf().set_params(dtype=numpy().float32)
        from sklearn.decomposition import TruncatedSVD

        try:
            vectors = self.vectorizer.fit_transform(report_each(codes, "counting words", progress))
            dimensions = min(self.settings["dimensions"], *vectors.shape)
            if dimensions < self.settings["dimensions"]:
                self.notes = (f"{dimensions} dimensions are all that these codes have: the scores are those of tf-idf",)
            self.svd = TruncatedSVD(dimensions, random_state=self.settings["seed"])
            self.codes = unit(self.svd.fit_transform(vectors))
        except ValueError as error:
            raise too_few_words(self.name, codes) from error

    def search(self, queries: Sequence[str], depth: int, progress: Progress) -> Iterator[SearchResult]:
        """See `Searcher`."""
        return nearest(self.codes, queries, self._vectors_of, depth, progress)

    def _vectors_of(self, queries: Sequence[str]) -> Any:
        return self.svd.transform(self.vectorizer.transform(queries))
