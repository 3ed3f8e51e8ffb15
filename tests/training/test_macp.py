"""The recipe `macp`. Equation 2 is tested in test_rows.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.retrieval.searchers.tiny_models import save_sentence_transformer
from tests.training.test_biencoder import compare_loss, load_recipe
from tests.training.test_rows import make_data

pytestmark = pytest.mark.embed


@pytest.mark.parametrize("mini_batch", [None, 3])
def test_loss_and_gradient_equal_an_independent_computation(mini_batch: int | None) -> None:
    settings = load_recipe("macp").defaults
    assert settings.temperature == 0.01
    compare_loss("macp", settings.model_copy(update={"mini_batch": mini_batch}))


def test_vectors_are_means_of_token_vectors(tmp_path: Path) -> None:
    recipe = load_recipe("macp")
    model = recipe.make_model(str(save_sentence_transformer(tmp_path / "base")), None, recipe.defaults)
    assert model[1].pooling_mode == "mean"


def test_each_batch_has_one_language_and_seven_negatives() -> None:
    from agent.training.batches import EpochRows

    recipe: Any = load_recipe("macp")
    languages = ["python", "java"] * 200
    data = make_data([(code, code, 1) for code in range(400)], 400, languages=languages)
    rows = EpochRows(data, recipe.form, recipe.defaults, recipe.has_in_batch_negatives(recipe.defaults))
    for batch in rows.draw(0):
        assert {len(row.codes) for row in batch} == {8}
        assert len({languages[code] for row in batch for code in row.codes}) == 1
