"""Searchers by the words of queries and codes: BM25, bag of words, tf-idf, and latent semantic analysis (LSA)."""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import bm25s
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from agent.errors import UsageError
from agent.evaluation.statistics import import_numpy
from agent.retrieval.searchers.base import Progress, SearchResult, report_progress, select_best_codes

# How many scores are held at once: a batch has as many queries as this divided by the number of codes.
MAX_SCORES = 20_000_000
# Scores are rounded to these, so that codes whose scores differ only by the rounding of sums tie: those of sparse
# vectors, held in 64 bits, and those of dense ones, held in 32.
DECIMALS, DENSE_DECIMALS = 12, 6
_IDENTIFIER = re.compile(r"\w+")
_BREAK = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=\d)(?=\D)|(?<=\D)(?=\d)|_+")


def tokenise(text: str) -> list[str]:
    """Return the words of a text, in order and lower case.

    An identifier is split at underscores, digits and changes of case (of ASCII letters); where it has several parts,
    the whole of it is a word too: `readHTTPHeader_2` gives `read`, `http`, `header`, `2` and `readhttpheader_2`. On the
    500 dev queries of CoSQA's search task BM25's MRR is 0.335 so, 0.333 without the whole identifiers, and 0.326
    without the stop words of Lucene's English analyzer, so that no word is left out.
    """
    return [token for identifier in _IDENTIFIER.findall(text) for token in _split_identifier(identifier)]


@lru_cache(maxsize=2**17)
def _split_identifier(identifier: str) -> tuple[str, ...]:
    parts = [part.lower() for part in _BREAK.split(identifier) if part]
    if len(parts) > 1:
        parts.append(identifier.lower())
    return tuple(parts)


def build_no_words_error(name: str, codes: Sequence[str]) -> UsageError:
    """Return the error for codes without words to search by."""
    return UsageError(f"{name} cannot search these {len(codes)} codes: too few words are in them")


def make_tfidf_vectorizer(vocabulary: Mapping[str, int] | None = None) -> Any:
    """Return scikit-learn's TfidfVectorizer of our words, as it is by default.

    The weight of word t in text d is tf(t, d) · idf(t), with the count tf and idf(t) = ln((1 + n) / (1 + df(t))) + 1 of
    n codes, of which df(t) have the word; vectors are of length 1.
    """
    return TfidfVectorizer(analyzer=tokenise, vocabulary=vocabulary)


def normalise_rows(matrix: Any) -> Any:
    """Return a matrix (sparse or dense) with rows of length 1; rows of zeros stay."""
    return normalize(matrix)


def _iterate_batches(queries: Sequence[str], codes: int, progress: Progress) -> Iterator[Sequence[str]]:
    """Yield queries in batches whose scores fit into memory."""
    size = max(1, MAX_SCORES // codes)
    for start in range(0, len(queries), size):
        yield queries[start : start + size]
        progress("searching", min(start + size, len(queries)), len(queries))


def rank_by_cosine(
    codes: Any, queries: Sequence[str], vectors_of: Callable[[Sequence[str]], Any], depth: int, progress: Progress
) -> Iterator[SearchResult]:
    """Yield the codes of highest cosine for each query; `codes` are vectors of length 1 in rows, in float32.

    A vector of zeros finds nothing and is not found.
    """
    np = import_numpy()
    empty = ~codes.any(axis=1)
    for batch in _iterate_batches(queries, len(codes), progress):
        vectors = normalise_rows(vectors_of(batch))
        for scores, known in zip(vectors @ codes.T, vectors.any(axis=1), strict=True):
            rounded = scores.astype(np.float64).round(DENSE_DECIMALS)
            rounded[empty | ~known] = -np.inf
            yield select_best_codes(rounded, depth)


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
        word_ids: defaultdict[str, int] = defaultdict(lambda: len(word_ids))
        texts = report_progress(codes, "reading words", progress)
        documents = [array("i", [word_ids[token] for token in tokenise(text)]) for text in texts]
        if not word_ids:
            raise build_no_words_error(self.name, codes)
        self.word_ids = dict(word_ids)
        self.scorer = bm25s.BM25(**self.settings, dtype="float64", csc_backend="scipy")
        self.scorer.index((documents, self.word_ids), create_empty_token=False, show_progress=False)

    def search(self, queries: Sequence[str], depth: int, progress: Progress) -> Iterator[SearchResult]:
        """See `Searcher`."""
        for query in report_progress(queries, "searching", progress):
            known = [self.word_ids[token] for token in tokenise(query) if token in self.word_ids]
            yield select_best_codes(self.scorer.get_scores_from_ids(known).round(DECIMALS), depth, above=0)


class VectorSpaceModel:
    """The cosine of sparse vectors of words: their counts (bag of words), or tf-idf as scikit-learn defines it.

    Codes without a word of the query are not found; words of the query that no code has count for nothing.
    """

    def __init__(self, name: str, about: str, *, weights: str = "counts") -> None:
        self.name, self.about = name, about
        self.settings: Mapping[str, Any] = {"weights": weights}

    def index(self, codes: Sequence[str], progress: Progress) -> None:
        """See `Searcher`."""
        self.vectorizer = make_tfidf_vectorizer().set_params(use_idf=self.settings["weights"] == "tf-idf")
        try:
            vectors = self.vectorizer.fit_transform(report_progress(codes, "counting words", progress))
        except ValueError as error:
            raise build_no_words_error(self.name, codes) from error
        self.by_word = vectors.T.tocsr()

    def search(self, queries: Sequence[str], depth: int, progress: Progress) -> Iterator[SearchResult]:
        """See `Searcher`."""
        for batch in _iterate_batches(queries, self.by_word.shape[1], progress):
            scores = (self.vectorizer.transform(batch) @ self.by_word).sorted_indices()
            for start, end in zip(scores.indptr, scores.indptr[1:], strict=False):
                result = select_best_codes(scores.data[start:end].round(DECIMALS), depth, above=0)
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
        self.vectorizer = make_tfidf_vectorizer().set_params(dtype=import_numpy().float32)
        try:
            vectors = self.vectorizer.fit_transform(report_progress(codes, "counting words", progress))
            dimensions = min(self.settings["dimensions"], *vectors.shape)
            if dimensions < self.settings["dimensions"]:
                self.notes = (f"{dimensions} dimensions are all that these codes have: the scores are those of tf-idf",)
            self.svd = TruncatedSVD(dimensions, random_state=self.settings["seed"])
            self.codes = normalise_rows(self.svd.fit_transform(vectors))
        except ValueError as error:
            raise build_no_words_error(self.name, codes) from error

    def search(self, queries: Sequence[str], depth: int, progress: Progress) -> Iterator[SearchResult]:
        """See `Searcher`."""
        return rank_by_cosine(self.codes, queries, self._embed_queries, depth, progress)

    def _embed_queries(self, queries: Sequence[str]) -> Any:
        return self.svd.transform(self.vectorizer.transform(queries))
