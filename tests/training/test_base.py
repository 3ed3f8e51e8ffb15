"""Base models, loaded by the same code as real ones."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from agent.errors import UsageError
from agent.training.base import load_base
from agent.training.recipe import load_recipe
from tests.retrieval.searchers.tiny_models import (
    publish,
    save_custom_model,
    save_roberta,
    save_sentence_transformer,
)

pytestmark = pytest.mark.embed


@pytest.mark.parametrize(
    ("save", "name", "pooling", "expected"),
    [
        (save_roberta, "mine", None, "mean"),
        (save_roberta, "mine", "last", "lasttoken"),
        (save_roberta, "codebert-base", None, "cls"),
        (save_roberta, "codebert-base", "mean", "mean"),
        (save_sentence_transformer, "mine", None, "max"),
        (save_sentence_transformer, "mine", "cls", "cls"),
    ],
)
def test_the_pooling_is_the_given_one_or_that_of_the_modules_or_family(
    hub: Path, save: Any, name: str, pooling: Any, expected: str
) -> None:
    model = load_base(publish(save(hub / name)), pooling=pooling, max_tokens=None)
    assert str(model[1].pooling_mode) == expected


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("biencoder", {"pooling": "cls"}, ("cls", "cosine")),
        ("macp", {}, ("mean", "cosine")),
        ("coclr", {"pooling": None}, ("cls", "dot")),
        ("coclr", {"pooling": "mean"}, ("mean", "dot")),
    ],
)
def test_recipes_choose_pooling_and_similarity(tmp_path: Path, name: str, changes: Any, expected: Any) -> None:
    recipe: Any = load_recipe(name)
    settings = recipe.defaults.model_copy(update={"max_tokens": 9, **changes})
    model = recipe.make_model(str(save_sentence_transformer(tmp_path / "base")), None, settings, None)
    assert (model[1].pooling_mode, model.similarity_fn_name, model.max_seq_length) == (*expected, 9)


def test_the_limit_on_tokens_is_lowered_and_never_raised(hub: Path) -> None:
    name = publish(save_roberta(hub / "codebert-base"))
    assert [load_base(name, pooling=None, max_tokens=n).max_seq_length for n in (7, None, 10**6)] == [7, 512, 512]


def test_prefixes_of_the_family_become_prompts_for_names_on_the_hub(hub: Path) -> None:
    folder = save_roberta(hub / "e5-small")
    for base, prompts in ((publish(folder), ("query: ", "passage: ")), (str(folder), ("", ""))):
        model = load_base(base, pooling=None, max_tokens=None)
        assert (model.prompts["query"], model.prompts["document"]) == prompts


def test_a_missing_model_is_an_error_without_retries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    requests: list[str] = []

    def refuse(_self: Any, name: str, **_: Any) -> None:
        requests.append(name)
        raise ConnectionError

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", refuse)
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("a retry"))
    for base in ("owner/missing", str(tmp_path / "missing")):
        with pytest.raises(UsageError, match=base):
            load_base(base, pooling=None, max_tokens=None)
    assert requests == ["owner/missing"]


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ("license: mit\n---\n", "mit"),
        ("tags: x\nlicense:\n- 'mit'\n---\n", "mit"),
        ('license: "mit"\n---\n', "mit"),
        ("tags: x\n---\nlicense: mit\n", None),
    ],
)
def test_the_licence_is_read_from_the_header_of_the_card(tmp_path: Path, card: str, licence: str | None) -> None:
    folder = save_roberta(tmp_path / "base")
    (folder / "README.md").write_text(f"---\n{card}")
    assert load_base(str(folder), pooling=None, max_tokens=None).model_card_data.license == licence


def test_custom_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Python code"):
        load_base(str(save_custom_model(tmp_path / "mine")), pooling=None, max_tokens=None)
