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
from tests.retrieval.searchers.test_dense import search_scores, silent

TEXTS = st.lists(st.lists(st.sampled_from("abcde"), max_size=6).map(" ".join), min_size=1, max_size=8)


def search(name, codes, queries, depth=1000):
    searcher = make_searcher(name)
    searcher.index(codes, silent)
    return search_scores(searcher, queries, depth)


@pytest.mark.parametrize(("name", "k1"), [("bm25", 1.5), ("bm25-lucene", 1.2)])
@given(codes=TEXTS.filter(any), queries=TEXTS)
def test_scores_equal_the_formula(name, k1, codes, queries):
    words = [Counter(tokenise(code)) for code in codes]
    mean = sum(map(Counter.total, words)) / len(words)

    def score(query, code):
        total = 0
        for word in tokenise(query):
            df = sum(word in counts for counts in words)
            idf = math.log(1 + (len(words) - df + 0.5) / (df + 0.5))
            total += idf * code[word] / (code[word] + k1 * (1 - 0.75 + 0.75 * code.total() / mean))
        return total

    for query, scores in zip(queries, search(name, codes, queries), strict=True):
        expected = {i: score(query, code) for i, code in enumerate(words)}
        assert scores == pytest.approx({i: value for i, value in expected.items() if value > 0}, abs=1e-11)


def test_snippets_that_tie_with_the_last_one_are_retrieved():
    [scores] = search("bm25", ["a b", "a", "b a", "c", "a d"], ["a"], depth=2)

    assert set(scores) == {0, 1, 2, 4}
    assert scores[0] == scores[2] == scores[4] < scores[1]


@pytest.mark.real_data
def test_mrr_on_real_functions_is_at_least_that_of_plain_bm25s():
    folder = Path(os.environ["AGENT_REAL_DATA"])
    codes, queries = (
        [json.loads(line) for line in Path(folder, name).read_text("utf-8").splitlines()]
        for name in ("cosqa_search_codes_6267.jsonl", "cosqa_search_dev_500.jsonl")
    )
    ids, texts = [str(row["code-idx"]) for row in codes], [row["code"] for row in codes]
    query_texts = [row["query"] for row in queries]
    qrels = {str(number): {str(row["code-idx"]): 1} for number, row in enumerate(queries)}
    plain = bm25s.BM25()
    plain.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    tokens = bm25s.tokenize(query_texts, show_progress=False)
    rows = zip(*plain.retrieve(tokens, k=1000, show_progress=False), strict=True)
    reference = [dict(zip(positions.tolist(), scores.tolist(), strict=True)) for positions, scores in rows]

    def mrr(results):
        run = {str(n): {ids[code]: score for code, score in result.items()} for n, result in enumerate(results)}
        return ir_measures.calc_aggregate([ir_measures.RR], qrels, run)[ir_measures.RR]

    assert 0.2 < mrr(reference) <= mrr(search("bm25", texts, query_texts))
