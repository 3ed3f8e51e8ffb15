"""Lexical searchers: BM25, bag of words, tf-idf, and latent semantic analysis (LSA)."""

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
from agent.evaluation.lazy_numpy import np
from agent.retrieval.searchers.base import SearchResult, Vectors, report_progress, select_best_codes
from agent.types import Progress

# The maximum number of scores in memory. It limits the number of queries per batch.
MAX_SCORES = 20_000_000
# Scores are rounded to this number of decimals, so that snippets tie if their scores differ only by rounding errors.
# `DECIMALS` applies to sparse vectors (float64), and `DENSE_DECIMALS` applies to dense vectors (float32).
DECIMALS, DENSE_DECIMALS = 12, 6
_IDENTIFIER = re.compile(r"\w+")
_BREAK = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=\d)(?=\D)|(?<=\D)(?=\d)|_+")


def tokenise(text: str) -> list[str]:
    """Split a text into lowercase words, in order.

    Identifiers are split at underscores, digits and case changes (ASCII letters only). If an identifier has several
    parts, the whole identifier is also a word. For example, `readHTTPHeader_2` yields `read`, `http`, `header`, `2` and
    `readhttpheader_2`. On the 500 dev queries of CoSQA's search task, BM25 has an MRR of 0.335. Without whole
    identifiers, the MRR is 0.333. If the stop words of Lucene's English analyzer are removed, it is 0.326. Stop
    words are therefore kept.
    """
    return [token for identifier in _IDENTIFIER.findall(text) for token in _split_identifier(identifier)]


@lru_cache(maxsize=2**17)
def _split_identifier(identifier: str) -> tuple[str, ...]:
    parts = [part.lower() for part in _BREAK.split(identifier) if part]
    if len(parts) > 1:
        parts.append(identifier.lower())
    return tuple(parts)


def build_no_words_error(name: str, codes: Sequence[str]) -> UsageError:
    """Build the error for a corpus with too few words to search."""
    return UsageError(f"{name} cannot search these {len(codes)} snippets: they contain too few words")


def make_tfidf_vectorizer(vocabulary: Mapping[str, int] | None = None) -> Any:
    """Create a scikit-learn TfidfVectorizer with our tokeniser and otherwise default options.

    The weight of word t in text d is tf(t, d) · idf(t), where tf(t, d) is the count of t in d. idf(t) is
    ln((1 + n) / (1 + df(t))) + 1, where n is the number of snippets and df(t) is the number of snippets that contain t.
    Vectors are scaled to length 1.
    """
    return TfidfVectorizer(analyzer=tokenise, vocabulary=vocabulary)


def normalise_rows(matrix: Any) -> Any:
    """Scale the rows of a matrix (sparse or dense) to length 1. Zero rows stay zero."""
    return normalize(matrix)


def _iterate_batches(queries: Sequence[str], codes: int, progress: Progress) -> Iterator[Sequence[str]]:
    """Iterate over queries in batches whose scores fit into memory."""
    size = max(1, MAX_SCORES // codes)
    for start in range(0, len(queries), size):
        yield queries[start : start + size]
        progress("searching", min(start + size, len(queries)), len(queries))


def rank_by_cosine(
    codes: Any, queries: Sequence[str], embed: Callable[[Sequence[str]], Any], depth: int, progress: Progress
) -> Iterator[SearchResult]:
    """Rank snippets for each query by cosine similarity. `codes` contains float32 row vectors of length 1.

    A query with a zero vector retrieves nothing. A snippet with a zero vector is never retrieved.
    """
    empty = ~codes.any(axis=1)
    for batch in _iterate_batches(queries, len(codes), progress):
        vectors = normalise_rows(embed(batch))
        for scores, has_vector in zip(vectors @ codes.T, vectors.any(axis=1), strict=True):
            scores = scores.astype(np.float64).round(DENSE_DECIMALS)
            scores[empty | ~has_vector] = -np.inf
            yield select_best_codes(scores, depth)


class BM25:
    """Ranks snippets with BM25, as computed by the `lucene` method of bm25s (Lù 2024).

    Kamphuis et al. 2020 call this method "Lucene (accurate)". The score of a snippet d is the sum of the following term
    over the words t of the query, including repetitions:

        ln(1 + (N − df(t) + 0.5) / (df(t) + 0.5)) · tf(t, d) / (tf(t, d) + k1 · (1 − b + b · |d| / avgdl))

    N is the number of snippets. df(t) is the number of snippets that contain t, and tf(t, d) is the count of t in d.
    |d| is the number of words in d, and avgdl is the mean of |d| over all snippets. For the parameters k1 and b, `bm25`
    uses the defaults of bm25s, and `bm25-lucene` uses the defaults of Lucene's BM25Similarity. Unlike Lucene, bm25s
    does not encode |d| in one byte.
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
            ids = [self.word_ids[token] for token in tokenise(query) if token in self.word_ids]
            yield select_best_codes(self.scorer.get_scores_from_ids(ids).round(DECIMALS), depth, above=0)


class VectorSpaceModel:
    """Ranks snippets by the cosine similarity of sparse word vectors.

    The weights are counts (bag of words) or scikit-learn's tf-idf. Snippets that share no word with the query are not
    retrieved. Query words that no snippet contains are ignored.
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
    """Ranks snippets with latent semantic analysis (LSA, Deerwester et al. 1990).

    The score is the cosine similarity of tf-idf vectors reduced by scikit-learn's TruncatedSVD. A query with at least
    one known word retrieves every snippet that contains a word. The number of dimensions cannot exceed the number of
    words or the number of snippets. The defaults are our choice.
    """

    def __init__(self, name: str, about: str, *, dimensions: int = 300, seed: int = 0) -> None:
        self.name, self.about = name, about
        self.settings: Mapping[str, Any] = {"dimensions": dimensions, "seed": seed}
        self.notes: tuple[str, ...] = ()

    def index(self, codes: Sequence[str], progress: Progress) -> None:
        """See `Searcher`."""
        self.vectorizer = make_tfidf_vectorizer().set_params(dtype=np.float32)
        try:
            vectors = self.vectorizer.fit_transform(report_progress(codes, "counting words", progress))
            dimensions = min(self.settings["dimensions"], *vectors.shape)
            if dimensions < self.settings["dimensions"]:
                self.notes = (
                    f"the corpus allows only {dimensions} dimensions, so the scores are the same as for tfidf",
                )
            self.svd = TruncatedSVD(dimensions, random_state=self.settings["seed"])
            self.codes = normalise_rows(self.svd.fit_transform(vectors))
        except ValueError as error:
            raise build_no_words_error(self.name, codes) from error

    def search(self, queries: Sequence[str], depth: int, progress: Progress) -> Iterator[SearchResult]:
        """See `Searcher`."""
        return rank_by_cosine(self.codes, queries, self._embed_queries, depth, progress)

    def embed(self, codes: Sequence[str], queries: Sequence[str], progress: Progress) -> Vectors:
        """See `CosineSearcher`."""
        self.index(codes, progress)
        vectors = self.codes
        return Vectors(self._embed_queries(queries), lambda start, stop: vectors[start:stop])

    def _embed_queries(self, queries: Sequence[str]) -> Any:
        return self.svd.transform(self.vectorizer.transform(queries))
