import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.retrieval.searchers import lexical
from agent.retrieval.searchers.lexical import tokenise
from agent.retrieval.searchers.registry import make_searcher
from tests.retrieval.searchers.test_bm25 import search

TEXTS = st.lists(st.lists(st.sampled_from("abcde"), min_size=1, max_size=6).map(" ".join), min_size=1, max_size=8)


def cosine(a, b):
    product = sum(weight * b.get(word, 0) for word, weight in a.items())
    lengths = math.sqrt(sum(w * w for w in a.values()) * sum(w * w for w in b.values()))
    return product / lengths if lengths else 0


@given(TEXTS, TEXTS)
def test_bag_of_words_scores_are_cosines_of_counts(codes, queries):
    vocabulary = {word for code in codes for word in tokenise(code)}
    for query, scores in zip(queries, search("bow", codes, queries), strict=True):
        query_counts = Counter(word for word in tokenise(query) if word in vocabulary)
        expected = {i: cosine(query_counts, Counter(tokenise(code))) for i, code in enumerate(codes)}
        assert scores == pytest.approx({i: score for i, score in expected.items() if score > 0}, abs=1e-11)


@given(TEXTS, TEXTS)
def test_tf_idf_weights_use_the_smoothed_idf(codes, queries):
    df = Counter(word for code in codes for word in set(tokenise(code)))

    def weights(text):
        counts = Counter(word for word in tokenise(text) if word in df)
        return {word: tf * (math.log((1 + len(codes)) / (1 + df[word])) + 1) for word, tf in counts.items()}

    for query, scores in zip(queries, search("tfidf", codes, queries), strict=True):
        expected = {i: cosine(weights(query), weights(code)) for i, code in enumerate(codes)}
        assert scores == pytest.approx({i: score for i, score in expected.items() if score > 0}, abs=1e-11)


def test_equal_cosines_tie_despite_rounding_errors():
    codes = ["a b c " * count for count in range(1, 30)]

    for name in ("bow", "tfidf"):
        [scores] = search(name, codes, ["a b d"])
        assert len(scores) == 29
        assert len(set(scores.values())) == 1


def test_snippets_that_tie_with_the_last_one_are_retrieved():
    assert search("bow", ["a", "a b", "b", "a b", "a c", "a b c"], ["a"], depth=2) == [
        {0: 1.0, 1: pytest.approx(0.5**0.5), 3: pytest.approx(0.5**0.5), 4: pytest.approx(0.5**0.5)}
    ]


@pytest.mark.parametrize("name", ["bow", "tfidf", "lsa"])
def test_results_do_not_depend_on_batches(name, monkeypatch):
    codes, queries = ["a b", "b c", "c d a"], ["a", "b", "c", "d", "a d"]
    single_batch = search(name, codes, queries)

    monkeypatch.setattr(lexical, "MAX_SCORES", 7)

    assert search(name, codes, queries) == single_batch


def test_lsa_retrieves_snippets_with_related_words():
    codes = ["car engine wheel", "automobile engine wheel", "flower garden", "garden tree flower"] * 3
    searcher = make_searcher("lsa")
    searcher.settings = {**searcher.settings, "dimensions": 2}
    searcher.index(codes, lambda *_: None)
    [result] = searcher.search(["car"], 6, lambda *_: None)

    assert sorted(result.positions) == [0, 1, 4, 5, 8, 9]


def test_lsa_with_all_dimensions_equals_tf_idf():
    codes = ["a b c", "a a d", "b d e e", "c"]
    searcher = make_searcher("lsa")
    searcher.index(codes, lambda *_: None)
    assert "4 dimensions" in searcher.notes[0]

    for by_lsa, by_tfidf in zip(search("lsa", codes, codes), search("tfidf", codes, codes), strict=True):
        assert by_lsa == pytest.approx({i: by_tfidf.get(i, 0) for i in range(4)}, abs=2e-6)
