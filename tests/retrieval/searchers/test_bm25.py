import json
import math
import os
from collections import Counter
from pathlib import Path

import bm25s
import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.retrieval.searchers.lexical import tokenise
from agent.retrieval.searchers.registry import make_searcher

TEXTS = st.lists(st.lists(st.sampled_from("abcde"), max_size=6).map(" ".join), min_size=1, max_size=8)


def found(name, codes, queries, depth=1000):
    searcher = make_searcher(name)
    searcher.index(codes, lambda *_: None)
    return [
        dict(zip(each.positions.tolist(), each.scores.tolist(), strict=True))
        for each in searcher.search(queries, depth, lambda *_: None)
    ]


@pytest.mark.parametrize(("name", "k1"), [("bm25", 1.5), ("bm25-lucene", 1.2)])
@given(codes=TEXTS.filter(any), queries=TEXTS)
def test_scores_are_those_of_the_formula(name, k1, codes, queries):
    words = [Counter(tokenise(code)) for code in codes]
    mean = sum(map(Counter.total, words)) / len(words)

    def score(query, code):
        total = 0
        for word in tokenise(query):
            df = sum(word in each for each in words)
            idf = math.log(1 + (len(words) - df + 0.5) / (df + 0.5))
            total += idf * code[word] / (code[word] + k1 * (1 - 0.75 + 0.75 * code.total() / mean))
        return total

    for query, scores in zip(queries, found(name, codes, queries), strict=True):
        expected = {at: score(query, code) for at, code in enumerate(words)}
        assert scores == pytest.approx({at: each for at, each in expected.items() if each > 0}, abs=1e-11)


def test_all_that_tie_with_the_last_of_the_depth_are_found():
    [scores] = found("bm25", ["a b", "a", "b a", "c", "a d"], ["a"], depth=2)

    assert set(scores) == {0, 1, 2, 4}
    assert scores[0] == scores[2] == scores[4] < scores[1]


@pytest.mark.real_data
def test_real_codes_are_found_at_least_as_well_as_by_bm25s_as_it_is():
    folder = Path(os.environ["AGENT_REAL_DATA"])
    codes, queries = (
        [json.loads(line) for line in Path(folder, name).read_text("utf-8").splitlines()]
        for name in ("cosqa_search_codes_6267.jsonl", "cosqa_search_dev_500.jsonl")
    )
    ids, texts = [str(each["code-idx"]) for each in codes], [each["code"] for each in codes]
    asked = [each["query"] for each in queries]
    qrels = {str(at): {str(each["code-idx"]): 1} for at, each in enumerate(queries)}
    plain = bm25s.BM25()
    plain.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    rows = zip(*plain.retrieve(bm25s.tokenize(asked, show_progress=False), k=1000, show_progress=False), strict=True)
    theirs = [dict(zip(at.tolist(), scores.tolist(), strict=True)) for at, scores in rows]

    def mrr(results):
        run = {str(at): {ids[code]: score for code, score in each.items()} for at, each in enumerate(results)}
        return ir_measures.calc_aggregate([ir_measures.RR], qrels, run)[ir_measures.RR]

    assert 0.2 < mrr(theirs) <= mrr(found("bm25", texts, asked))
