import math
import os
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pytest

from agent.errors import UsageError
from agent.retrieval.searchers.lexical import tokenise
from agent.retrieval.searchers.ncs import Ncs, NcsPostrank

CODES = [
    "def read_lines(path): return open(path).readlines()",
    "def write_lines(path, lines): open(path).write(lines)",
    "def sort_list(items): return sorted(items)",
    "def sort_lines(path): return sorted(open(path))",
    "def reverse(items): return items[::-1]",
]
QUERIES = ["read lines of path", "sort sort items", "unheard"]
SMALL = {"vector_size": 8, "epochs": 3, "min_count": 1}


def silent(*_):
    pass


def indexed(kind=Ncs, codes=CODES, **settings):
    searcher = kind("ncs", "about", **{**SMALL, **settings})
    searcher.index(codes, silent)
    return searcher


def results(searcher, *queries, depth=1000):
    return [
        dict(zip(each.positions.tolist(), each.scores.tolist(), strict=True))
        for each in searcher.search(queries, depth, silent)
    ]


def idf(word):
    return math.log((1 + len(CODES)) / (1 + sum(word in tokenise(code) for code in CODES))) + 1


def cosine(searcher, query, code):
    words = [word for word in tokenise(code) if word in searcher.words.key_to_index]
    weights = [idf(word) for word in words]  # a word as often as it is there: its count times its idf
    of_code = np.average([searcher.words[word] for word in words], axis=0, weights=weights)
    of_query = np.mean([searcher.words[word] for word in tokenise(query) if word in searcher.words], axis=0)
    return of_code @ of_query / np.linalg.norm(of_code) / np.linalg.norm(of_query)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["fasttext", "word2vec"])
def test_the_score_is_the_cosine_of_the_mean_of_the_query_and_the_weighted_mean_of_the_code(model):
    searcher = indexed(model=model)

    for query, scores in zip(QUERIES[:2], results(searcher, *QUERIES[:2]), strict=True):
        expected = {at: cosine(searcher, query, code) for at, code in enumerate(CODES)}
        assert scores == pytest.approx(expected, abs=2e-6)


def test_a_word_that_no_code_has_is_known_by_its_parts_to_fasttext_alone():
    assert len(results(indexed(), "unheard")[0]) == len(CODES)
    assert results(indexed(model="word2vec"), "unheard") == [{}]


def test_results_are_reranked_by_the_share_of_the_query_that_they_have():
    plain, searcher = indexed(), indexed(NcsPostrank, reranked=3)
    [before], [after] = (results(each, "sort items unheard") for each in (plain, searcher))
    total = idf("sort") + idf("items")

    assert list(after) != list(before)
    for place, at in enumerate(before):
        share = sum(idf(word) for word in ("sort", "items") if word in tokenise(CODES[at])) / total
        assert after[at] == pytest.approx(before[at] + (share if place < 3 else 0), abs=2e-6)


def test_reranking_reaches_deeper_than_the_depth_asked_for():
    searcher = indexed(NcsPostrank)
    [deep], [one] = (results(searcher, "sort items", depth=depth) for depth in (1000, 1))

    assert list(one) == list(deep)[:1]


def test_a_query_of_words_that_no_code_has_is_not_reranked():
    plain, searcher = indexed(), indexed(NcsPostrank)

    assert results(searcher, "unheard") == results(plain, "unheard")


def test_words_that_occur_once_are_too_few_to_train_on():
    with pytest.raises(UsageError, match="ncs cannot search these 2 codes: too few words"):
        indexed(codes=["read", "write"], min_count=2)


@pytest.mark.slow
def test_another_process_finds_the_same_and_says_nothing():
    program = (
        "from agent.retrieval.searchers.registry import make_searcher\n"
        "for name in ('ncs', 'ncs-word2vec'):\n"
        "    searcher = make_searcher(name)\n"
        f"    searcher.index({CODES!r}, lambda *_: None)\n"
        f"    found = searcher.search({QUERIES!r}, 5, lambda *_: None)\n"
        "    print([(each.positions.tolist(), each.scores.tolist()) for each in found])"
    )
    command = [sys.executable, "-c", program]
    # this process has another seed, by chance
    there = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": "1"}
    )
    here = StringIO()
    with redirect_stdout(here):
        exec(program, {})

    assert there.stdout == here.getvalue()
    assert there.stdout.count("0.") > len(CODES)
    assert there.stderr == ""
