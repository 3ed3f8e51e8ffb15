import pytest

from agent.errors import ConfigError, UsageError
from agent.retrieval.searchers.registry import SEARCHERS, make_searcher

CODES = ["def read_file(path): read", "def readFile(name): read file", "", "sort a list of numbers", "sort a list fast"]
TRAINED = ("ncs", "ncs-word2vec", "ncs-postrank")


def silent(*_):
    pass


@pytest.fixture(scope="module", params=SEARCHERS)
def searcher(request):
    made = make_searcher(request.param)
    made.index(CODES, silent)
    return made


def test_a_searcher_has_the_name_it_was_asked_for_by(searcher):
    assert searcher.name in SEARCHERS
    assert searcher.about == SEARCHERS[searcher.name].about


def test_each_query_has_its_codes_best_first_and_the_one_that_was_meant_leads(searcher):
    read, sort = searcher.search(["read file", "sort list"], 3, silent)

    for found in (read, sort):
        assert (found.positions.dtype, found.scores.dtype) == ("int64", "float64")
        assert list(found.scores) == sorted(found.scores, reverse=True)
        assert 2 not in found.positions
    if searcher.name not in TRAINED:
        assert read.positions[0] in (0, 1)
        assert set(sort.positions[:2]) == {3, 4}


def test_a_query_without_words_finds_nothing(searcher):
    assert [len(found.positions) for found in searcher.search(["", "?!"], 3, silent)] == [0, 0]


def test_no_queries_find_nothing(searcher):
    assert list(searcher.search([], 3, silent)) == []


def test_progress_is_told_to_the_end(searcher):
    told = []
    list(searcher.search(["read", "sort"], 3, lambda *each: told.append(each)))

    assert told[-1][1:] == (2, 2)


@pytest.mark.parametrize("name", SEARCHERS)
@pytest.mark.parametrize("codes", [["", "+"], []])
def test_codes_without_a_word_cannot_be_searched(name, codes):
    with pytest.raises(UsageError, match=rf"{name} cannot search these {len(codes)} codes"):
        make_searcher(name).index(codes, silent)


@pytest.mark.parametrize("name", sorted(SEARCHERS.keys() - {*TRAINED, "lsa"}))
def test_one_word_in_one_code_can_be_searched(name):
    made = make_searcher(name)
    made.index(["read"], silent)

    assert [list(found.positions) for found in made.search(["read"], 3, silent)] == [[0]]


def test_a_name_nobody_has_is_an_error_that_names_near_ones_and_all():
    with pytest.raises(ConfigError, match=r"no searcher 'BM-25': bm25 .*may be meant.* bow, .*hf:…, openai:…"):
        make_searcher("BM-25")


@pytest.mark.parametrize("name", ["", "hf:", "openai:", "intfloat/e5-base-v2"])
def test_a_model_without_its_form_or_a_form_without_a_model_is_no_name(name):
    with pytest.raises(ConfigError, match="no searcher"):
        make_searcher(name)
