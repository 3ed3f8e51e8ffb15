"""Neural Code Search (NCS): vectors of words, trained on the codes themselves by gensim.

NCS is of Sachdev et al., *Retrieval on source code: a neural code search* (MAPL 2018). The paper of its benchmark (Li
et al. 2019, section 2.4) says that it is unsupervised, that its word embeddings come from the codes that are searched,
and that NCS-postrank ranks the results once more; the authors' article on ai.meta.com names fastText.
The 2018 paper's own formulas were not at hand; these are those of the NCS that Heyman and Van Cutsem (2020) published
(github.com/nokia/codesearch, `ncs_embedder.py`), with a vector v(w) for each word w:

    v(code)  = Σ_w tfidf(w, code) · v(w) / Σ_w tfidf(w, code)    over the distinct words of the code
    v(query) = Σ_i v(w_i) / n                                    over all n words of the query
    score    = cos(v(query), v(code))

As there, v is skip-gram's and tf-idf is scikit-learn's. Ours are how texts become words (`lexical.py`), the parameters
of training in `settings`, and the whole formula of `NcsPostrank`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gensim.models import FastText, Word2Vec
from gensim.models.callbacks import CallbackAny2Vec

from agent.evaluation.statistics import import_numpy
from agent.retrieval.searchers.base import Progress, SearchResult, report_progress, select_best_codes
from agent.retrieval.searchers.lexical import (
    DENSE_DECIMALS,
    build_no_words_error,
    make_tfidf_vectorizer,
    normalise_rows,
    rank_by_cosine,
    tokenise,
)

_TRAINING = {"vector_size": 100, "window": 5, "min_count": 2, "epochs": 15, "sg": 1, "negative": 5, "seed": 0}
# What gensim trains with, by its names; one thread, so that a seed gives the same vectors again.
_MODELS: Mapping[str, Mapping[str, int]] = {
    "word2vec": _TRAINING,
    "fasttext": {**_TRAINING, "min_n": 3, "max_n": 6, "bucket": 200_000},
}


class Ncs:
    """NCS; `model` is `fasttext`, which has vectors for words that no code has, or `word2vec`.

    A word that occurs fewer than `min_count` times in all codes counts for nothing in them. Of a code of more than
    10,000 words gensim trains with the first 10,000.
    """

    def __init__(self, name: str, about: str, *, model: str = "fasttext", **training: int) -> None:
        self.name, self.about = name, about
        self.settings: Mapping[str, Any] = {"model": model, **_MODELS[model], **training}

    def index(self, codes: Sequence[str], progress: Progress) -> None:
        """See `Searcher`."""
        self.words = self._train(codes, progress)
        self.tfidf = make_tfidf_vectorizer(self.words.key_to_index).set_params(dtype=import_numpy().float32)
        self.weights = self.tfidf.fit_transform(report_progress(codes, "weighting words", progress))
        self.codes = normalise_rows(self.weights @ self.words.vectors)

    def _train(self, codes: Sequence[str], progress: Progress) -> Any:
        class Epochs(CallbackAny2Vec):  # type: ignore[misc]
            done = 0

            def on_epoch_end(self, model: Any) -> None:
                self.done += 1
                progress("training vectors of words", self.done, model.epochs)

        training = {name: value for name, value in self.settings.items() if name not in ("model", "reranked")}
        train = {"fasttext": FastText, "word2vec": Word2Vec}[self.settings["model"]]
        sentences = [tokenise(code) for code in report_progress(codes, "reading words", progress)]
        try:
            return train(sentences, workers=1, callbacks=[Epochs()], **training).wv
        except RuntimeError as error:  # no word is left to train on
            raise build_no_words_error(self.name, codes) from error

    def search(self, queries: Sequence[str], depth: int, progress: Progress) -> Iterator[SearchResult]:
        """See `Searcher`."""
        return rank_by_cosine(self.codes, queries, self._embed_queries, depth, progress)

    def _embed_queries(self, queries: Sequence[str]) -> Any:
        np = import_numpy()
        none = [np.zeros(self.words.vector_size, np.float32)]
        known = ([self.words[word] for word in tokenise(query) if word in self.words] for query in queries)
        return np.stack([np.mean(vectors or none, axis=0) for vectors in known])


class NcsPostrank(Ncs):
    """NCS, and then of its best `reranked` codes those first that have more of the query. This formula is ours:

        score = cos(v(query), v(code)) + Σ_w idf(w) / Σ_u idf(u)

    over the query's distinct words w that are in the code, and u that are in any. Codes behind these keep the cosine.
    """

    def __init__(self, name: str, about: str, *, reranked: int = 100, **settings: Any) -> None:
        super().__init__(name, about, **settings)
        self.settings = {**self.settings, "reranked": reranked}

    def search(self, queries: Sequence[str], depth: int, progress: Progress) -> Iterator[SearchResult]:
        """See `Searcher`."""
        np, count = import_numpy(), self.settings["reranked"]
        for query, result in zip(queries, super().search(queries, max(depth, count), progress), strict=True):
            words = sorted(
                {self.words.key_to_index[word] for word in tokenise(query) if word in self.words.key_to_index}
            )
            scores = result.scores.copy()
            if words and len(scores):
                first = int(np.count_nonzero(scores >= scores[:count][-1]))
                there = self.weights[result.positions[:first]][:, words] > 0
                idf = self.tfidf.idf_[words].astype(np.float64)
                scores[:first] += (there @ idf) / idf.sum()
            again = select_best_codes(scores.round(DENSE_DECIMALS), depth)
            yield SearchResult(result.positions[again.positions], again.scores)
