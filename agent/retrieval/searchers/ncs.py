"""Implements Neural Code Search (NCS), with word embeddings that gensim trains on the corpus.

Source: Sachdev et al., *Retrieval on source code: a neural code search* (MAPL 2018). The paper that published the
benchmark (Li et al. 2019, section 2.4) says that NCS is unsupervised and trains word embeddings on the corpus, and that
NCS-postrank re-ranks the results. The authors' article on ai.meta.com mentions fastText. We had no access to the
formulas in the 2018 paper. The formulas here follow the NCS implementation by Heyman and Van Cutsem (2020;
github.com/nokia/codesearch, `ncs_embedder.py`). v(w) is the vector of word w:

    v(code)  = Σ_w tfidf(w, code) · v(w) / Σ_w tfidf(w, code)    over the distinct words of the code
    v(query) = Σ_i v(w_i) / n                                    over all n words of the query
    score    = cos(v(query), v(code))

As in that implementation, word vectors are trained with skip-gram, and tf-idf is computed by scikit-learn. The
tokeniser (`lexical.py`), the training parameters in `settings` and the formula in `NcsPostrank` are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gensim.models import FastText, Word2Vec
from gensim.models.callbacks import CallbackAny2Vec

from agent.evaluation.lazy_numpy import np
from agent.retrieval.searchers.base import SearchResult, report_progress, select_best_codes
from agent.retrieval.searchers.lexical import (
    DENSE_DECIMALS,
    build_no_words_error,
    make_tfidf_vectorizer,
    normalise_rows,
    rank_by_cosine,
    tokenise,
)
from agent.types import Progress

_TRAINING = {"vector_size": 100, "window": 5, "min_count": 2, "epochs": 15, "sg": 1, "negative": 5, "seed": 0}
# Training parameters, with the names that gensim uses. Training uses one thread, so that a seed always yields the same
# vectors.
_MODELS: Mapping[str, Mapping[str, int]] = {
    "word2vec": _TRAINING,
    "fasttext": {**_TRAINING, "min_n": 3, "max_n": 6, "bucket": 200_000},
}


def train_word_vectors(
    name: str, codes: Sequence[str], progress: Progress, *, model: str = "fasttext", **training: int
) -> Any:
    """Train word vectors on the words of snippets, and return them as gensim's `KeyedVectors`.

    `model` and `training` are the settings of `Ncs`. `name` is the name of the searcher in error messages.

    Raises:
        UsageError: no word occurs at least `min_count` times.
    """

    class Epochs(CallbackAny2Vec):  # type: ignore[misc]
        done = 0

        def on_epoch_end(self, model: Any) -> None:
            self.done += 1
            progress("training word vectors", self.done, model.epochs)

    train = {"fasttext": FastText, "word2vec": Word2Vec}[model]
    sentences = [tokenise(code) for code in report_progress(codes, "reading words", progress)]
    try:
        return train(sentences, workers=1, callbacks=[Epochs()], **{**_MODELS[model], **training}).wv
    except RuntimeError as error:  # no word occurs at least min_count times
        raise build_no_words_error(name, codes) from error


class Ncs:
    """Ranks snippets with NCS (Neural Code Search).

    `model` selects how word vectors are trained: `word2vec` or `fasttext`. Only `fasttext` has vectors for words
    outside the corpus. Words with fewer than `min_count` occurrences in the corpus are ignored. gensim trains only on
    the first 10,000 words of each snippet.
    """

    def __init__(self, name: str, about: str, *, model: str = "fasttext", **training: int) -> None:
        self.name, self.about = name, about
        self.settings: Mapping[str, Any] = {"model": model, **_MODELS[model], **training}

    def index(self, codes: Sequence[str], progress: Progress) -> None:
        """See `Searcher`."""
        training = {name: value for name, value in self.settings.items() if name != "reranked"}
        self.words = train_word_vectors(self.name, codes, progress, **training)
        self.tfidf = make_tfidf_vectorizer(self.words.key_to_index).set_params(dtype=np.float32)
        self.weights = self.tfidf.fit_transform(report_progress(codes, "weighting words", progress))
        self.codes = normalise_rows(self.weights @ self.words.vectors)

    def search(self, queries: Sequence[str], depth: int, progress: Progress) -> Iterator[SearchResult]:
        """See `Searcher`."""
        return rank_by_cosine(self.codes, queries, self._embed_queries, depth, progress)

    def _embed_queries(self, queries: Sequence[str]) -> Any:
        zero = [np.zeros(self.words.vector_size, np.float32)]
        by_query = ([self.words[word] for word in tokenise(query) if word in self.words] for query in queries)
        return np.stack([np.mean(vectors or zero, axis=0) for vectors in by_query])


class NcsPostrank(Ncs):
    """Ranks snippets with NCS (Neural Code Search), and re-ranks the best by the query words that they contain.

    `reranked` is the number of snippets that are re-ranked. The score of a re-ranked snippet is our own formula:

        score = cos(v(query), v(code)) + Σ_w idf(w) / Σ_u idf(u)

    v is the vector of a query or a snippet (see the module docstring), and idf is the inverse document frequency of a
    word. w runs over the distinct query words in the snippet, and u runs over the distinct query words in the corpus.
    All other snippets are scored by the cosine alone.
    """

    def __init__(self, name: str, about: str, *, reranked: int = 100, **settings: Any) -> None:
        super().__init__(name, about, **settings)
        self.settings = {**self.settings, "reranked": reranked}

    def search(self, queries: Sequence[str], depth: int, progress: Progress) -> Iterator[SearchResult]:
        """See `Searcher`."""
        count = self.settings["reranked"]
        for query, result in zip(queries, super().search(queries, max(depth, count), progress), strict=True):
            words = sorted(
                {self.words.key_to_index[word] for word in tokenise(query) if word in self.words.key_to_index}
            )
            scores = result.scores.copy()
            if words and len(scores):
                top = int(np.count_nonzero(scores >= scores[:count][-1]))
                contains_word = self.weights[result.positions[:top]][:, words] > 0
                idf = self.tfidf.idf_[words].astype(np.float64)
                scores[:top] += (contains_word @ idf) / idf.sum()
            best = select_best_codes(scores.round(DENSE_DECIMALS), depth)
            yield SearchResult(result.positions[best.positions], best.scores)
