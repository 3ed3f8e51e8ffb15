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
from tests.retrieval.searchers.test_dense import search_scores, silent

CODES = [
    "def read_lines(path): return open(path).readlines()",
    "def write_lines(path, lines): open(path).write(lines)",
    "def sort_list(items): return sorted(items)",
    "def sort_lines(path): return sorted(open(path))",
    "def reverse(items): return items[::-1]",
]
QUERIES = ["read lines of path", "sort sort items", "unheard"]
SMALL = {"vector_size": 8, "epochs": 3, "min_count": 1}


def make_index(cls=Ncs, codes=CODES, **settings):
    searcher = cls("ncs", "about", **{**SMALL, **settings})
    searcher.index(codes, silent)
    return searcher


def search(searcher, *queries, depth=1000):
    return search_scores(searcher, queries, depth)


def idf(word):
    return math.log((1 + len(CODES)) / (1 + sum(word in tokenise(code) for code in CODES))) + 1


def cosine(searcher, query, code):
    words = [word for word in tokenise(code) if word in searcher.words.key_to_index]
    weights = [idf(word) for word in words]  # tf-idf, because `words` has repetitions
    code_vector = np.average([searcher.words[word] for word in words], axis=0, weights=weights)
    query_vector = np.mean([searcher.words[word] for word in tokenise(query) if word in searcher.words], axis=0)
    return code_vector @ query_vector / np.linalg.norm(code_vector) / np.linalg.norm(query_vector)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["fasttext", "word2vec"])
def test_scores_are_cosines_of_query_mean_and_weighted_code_mean(model):
    searcher = make_index(model=model)

    for query, scores in zip(QUERIES[:2], search(searcher, *QUERIES[:2]), strict=True):
        expected = {position: cosine(searcher, query, code) for position, code in enumerate(CODES)}
        assert scores == pytest.approx(expected, abs=2e-6)


def test_only_fasttext_has_vectors_for_words_outside_the_corpus():
    assert len(search(make_index(), "unheard")[0]) == len(CODES)
    assert search(make_index(model="word2vec"), "unheard") == [{}]


def test_results_are_re_ranked_by_the_share_of_query_words():
    ncs, searcher = make_index(), make_index(NcsPostrank, reranked=3)
    [before], [after] = search(ncs, "sort items unheard"), search(searcher, "sort items unheard")
    total = idf("sort") + idf("items")

    assert list(after) != list(before)
    for rank, position in enumerate(before):
        share = sum(idf(word) for word in ("sort", "items") if word in tokenise(CODES[position])) / total
        assert after[position] == pytest.approx(before[position] + (share if rank < 3 else 0), abs=2e-6)


def test_re_ranking_is_not_limited_by_depth():
    searcher = make_index(NcsPostrank)
    [deep], [shallow] = (search(searcher, "sort items", depth=depth) for depth in (1000, 1))

    assert list(shallow) == list(deep)[:1]


def test_a_query_of_unknown_words_is_not_re_ranked():
    ncs, searcher = make_index(), make_index(NcsPostrank)

    assert search(searcher, "unheard") == search(ncs, "unheard")


def test_too_few_words_to_train_raise_usage_error():
    with pytest.raises(UsageError, match=r"^ncs .*\b2\b"):
        make_index(codes=["read", "write"], min_count=2)


@pytest.mark.slow
def test_results_are_reproducible_in_another_process():
    program = (
        "from agent.retrieval.searchers.registry import make_searcher\n"
        "for name in ('ncs', 'ncs-word2vec'):\n"
        "    searcher = make_searcher(name)\n"
        f"    searcher.index({CODES!r}, lambda *_: None)\n"
        f"    results = searcher.search({QUERIES!r}, 5, lambda *_: None)\n"
        "    print([(result.positions.tolist(), result.scores.tolist()) for result in results])"
    )
    command = [sys.executable, "-c", program]
    # the hash seed of this process is random
    process = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": "1"}
    )
    stdout = StringIO()
    with redirect_stdout(stdout):
        exec(program, {})

    assert process.stdout == stdout.getvalue()
    assert process.stdout.count("0.") > len(CODES)
    assert process.stderr == ""
