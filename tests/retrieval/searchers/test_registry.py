import pytest

from agent.errors import ConfigError, UsageError
from agent.retrieval.searchers.presets import EmbedderOptions
from agent.retrieval.searchers.registry import SEARCHERS, make_searcher
from tests.retrieval.searchers.test_dense import silent

CODES = ["def read_file(path): read", "def readFile(name): read file", "", "sort a list of numbers", "sort a list fast"]
TRAINED = ("ncs", "ncs-word2vec", "ncs-postrank")


@pytest.fixture(scope="module", params=SEARCHERS)
def searcher(request):
    searcher = make_searcher(request.param)
    searcher.index(CODES, silent)
    return searcher


def test_a_searcher_has_the_requested_name(searcher):
    assert searcher.name in SEARCHERS
    assert searcher.about == SEARCHERS[searcher.name].about


def test_results_are_sorted_and_the_relevant_snippet_is_first(searcher):
    read, sort = searcher.search(["read file", "sort list"], 3, silent)

    for result in (read, sort):
        assert (result.positions.dtype, result.scores.dtype) == ("int64", "float64")
        assert list(result.scores) == sorted(result.scores, reverse=True)
        assert 2 not in result.positions
    if searcher.name not in TRAINED:
        assert read.positions[0] in (0, 1)
        assert set(sort.positions[:2]) == {3, 4}


def test_a_query_without_words_retrieves_nothing(searcher):
    assert [len(result.positions) for result in searcher.search(["", "?!"], 3, silent)] == [0, 0]


def test_zero_queries_have_zero_results(searcher):
    assert list(searcher.search([], 3, silent)) == []


def test_progress_is_reported_to_the_end(searcher):
    reports = []
    list(searcher.search(["read", "sort"], 3, lambda *report: reports.append(report)))

    assert reports[-1][1:] == (2, 2)


@pytest.mark.parametrize("name", SEARCHERS)
@pytest.mark.parametrize("codes", [["", "+"], []])
def test_snippets_without_words_raise_usage_error(name, codes):
    with pytest.raises(UsageError, match=rf"^{name} .*\b{len(codes)}\b"):
        make_searcher(name).index(codes, silent)


@pytest.mark.parametrize("name", sorted(SEARCHERS.keys() - {*TRAINED, "lsa"}))
def test_a_single_word_in_a_single_snippet_is_found(name):
    searcher = make_searcher(name)
    searcher.index(["read"], silent)

    assert [list(result.positions) for result in searcher.search(["read"], 3, silent)] == [[0]]


def test_an_unknown_name_raises_an_error_with_suggestions_and_all_names():
    with pytest.raises(ConfigError, match=r"'BM-25'.* bm25 .*\?.* bow, .*hf:…, openai:…"):
        make_searcher("BM-25")


@pytest.mark.parametrize("name", ["bm25", "ncs", "openai:m"])
@pytest.mark.parametrize(("option", "value"), [("max_tokens", 64), ("precision", "bfloat16")])
def test_options_of_local_models_are_refused_for_other_searchers(name, option, value):
    with pytest.raises(ConfigError, match=option.replace("_", "-")):
        make_searcher(name, EmbedderOptions(**{option: value}))


@pytest.mark.parametrize("name", ["", "hf:", "openai:", "minilm:", "intfloat/e5-base-v2"])
def test_a_model_without_prefix_or_a_prefix_without_model_is_unknown(name):
    with pytest.raises(ConfigError, match=f"'{name}'"):
        make_searcher(name)
