import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.retrieval.searchers import lexical
from agent.retrieval.searchers.lexical import tokenise
from agent.retrieval.searchers.registry import make_searcher

TEXTS = st.lists(st.lists(st.sampled_from("abcde"), min_size=1, max_size=6).map(" ".join), min_size=1, max_size=8)


def found(name, codes, *queries, depth=1000):
    searcher = make_searcher(name)
    searcher.index(codes, lambda *_: None)
    return [
        dict(zip(each.positions.tolist(), each.scores.tolist(), strict=True))
        for each in searcher.search(queries, depth, lambda *_: None)
    ]


def cosine(one, other):
    product = sum(weight * other.get(word, 0) for word, weight in one.items())
    lengths = math.sqrt(sum(w * w for w in one.values()) * sum(w * w for w in other.values()))
    return product / lengths if lengths else 0


@given(TEXTS, TEXTS)
def test_a_bag_of_words_scores_by_the_cosine_of_counts(codes, queries):
    known = {word for code in codes for word in tokenise(code)}
    for query, scores in zip(queries, found("bow", codes, *queries), strict=True):
        asked = Counter(word for word in tokenise(query) if word in known)
        expected = {at: cosine(asked, Counter(tokenise(code))) for at, code in enumerate(codes)}
        assert scores == pytest.approx({at: score for at, score in expected.items() if score > 0}, abs=1e-11)


@given(TEXTS, TEXTS)
def test_tf_idf_weighs_words_by_the_smoothed_logarithm_of_their_rarity(codes, queries):
    having = Counter(word for code in codes for word in set(tokenise(code)))

    def weights(text):
        counts = Counter(word for word in tokenise(text) if word in having)
        return {word: tf * (math.log((1 + len(codes)) / (1 + having[word])) + 1) for word, tf in counts.items()}

    for query, scores in zip(queries, found("tfidf", codes, *queries), strict=True):
        expected = {at: cosine(weights(query), weights(code)) for at, code in enumerate(codes)}
        assert scores == pytest.approx({at: score for at, score in expected.items() if score > 0}, abs=1e-11)


def test_codes_whose_cosines_are_equal_tie_however_their_sums_are_rounded():
    codes = ["a b c " * times for times in range(1, 30)]

    for name in ("bow", "tfidf"):
        [scores] = found(name, codes, "a b d")
        assert len(scores) == 29
        assert len(set(scores.values())) == 1


def test_all_that_tie_with_the_last_of_the_depth_are_found():
    assert found("bow", ["a", "a b", "b", "a b", "a c", "a b c"], "a", depth=2) == [
        {0: 1.0, 1: pytest.approx(0.5**0.5), 3: pytest.approx(0.5**0.5), 4: pytest.approx(0.5**0.5)}
    ]


@pytest.mark.parametrize("name", ["bow", "tfidf", "lsa"])
def test_searching_in_batches_finds_the_same(name, monkeypatch):
    codes, queries = ["a b", "b c", "c d a"], ["a", "b", "c", "d", "a d"]
    at_once = found(name, codes, *queries)

    monkeypatch.setattr(lexical, "MAX_SCORES", 7)

    assert found(name, codes, *queries) == at_once


def test_lsa_finds_codes_by_words_that_stand_with_those_of_the_query():
    codes = ["car engine wheel", "automobile engine wheel", "flower garden", "garden tree flower"] * 3
    searcher = make_searcher("lsa")
    searcher.settings = {**searcher.settings, "dimensions": 2}
    searcher.index(codes, lambda *_: None)
    [found_for_car] = searcher.search(["car"], 6, lambda *_: None)

    assert sorted(found_for_car.positions) == [0, 1, 4, 5, 8, 9]


def test_lsa_of_all_dimensions_compares_codes_as_tf_idf_does():
    codes = ["a b c", "a a d", "b d e e", "c"]
    searcher = make_searcher("lsa")
    searcher.index(codes, lambda *_: None)
    assert searcher.notes == ("4 dimensions are all that these codes have: the scores are those of tf-idf",)

    for by_lsa, by_tfidf in zip(found("lsa", codes, *codes), found("tfidf", codes, *codes), strict=True):
        assert by_lsa == pytest.approx({at: by_tfidf.get(at, 0) for at in range(4)}, abs=2e-6)
