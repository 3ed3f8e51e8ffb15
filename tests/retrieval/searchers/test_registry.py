import pytest

from agent.errors import ConfigError
from agent.retrieval.searchers.recipes import ModelOptions
from agent.retrieval.searchers.registry import SEARCHERS, make


@pytest.mark.parametrize("name", SEARCHERS)
def test_a_searcher_has_the_name_it_was_asked_for_by(name):
    searcher = make(name)

    assert searcher.name == name
    assert searcher.about


def test_searchers_without_a_model_have_no_use_for_the_options_of_models():
    assert make("bm25", ModelOptions(base_url="http://localhost")).settings == make("bm25").settings


def test_a_name_nobody_has_is_an_error_that_names_near_ones_and_all():
    with pytest.raises(ConfigError, match=r"no searcher 'BM-25': bm25 .*may be meant.* bow, .*hf:…, openai:…"):
        make("BM-25")


@pytest.mark.parametrize("name", ["", "hf:", "openai:", "intfloat/e5-base-v2"])
def test_a_model_without_its_form_or_a_form_without_a_model_is_no_name(name):
    with pytest.raises(ConfigError, match="no searcher"):
        make(name)
