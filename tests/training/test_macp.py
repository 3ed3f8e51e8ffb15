"""The recipe `macp`: loss, vectors and equation 2."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare

from agent.training.rows import EpochRows
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
    model = recipe.make_model(str(save_sentence_transformer(tmp_path / "base")), None, recipe.defaults, None)
    assert model[1].pooling_mode == "mean"


def test_the_share_of_batches_by_language_follows_equation_2() -> None:
    sizes = {"python": 900, "java": 100, "go": 25}
    languages = [language for language, size in sizes.items() for _ in range(size)]
    data = make_data([(code, code, 1) for code in range(1025)], 1025, languages=languages)
    recipe = load_recipe("macp")
    rows = EpochRows(data, recipe.form, recipe.defaults.model_copy(update={"batch_size": 5, "seed": 3}))
    batches = [batch for epoch in range(20) for batch in rows.draw(epoch)]
    assert {len(row.codes) for batch in batches for row in batch} == {1 + 7}
    counts = Counter(languages[batch[0].codes[0]] for batch in batches)

    def compute_p(alpha: float) -> float:
        weights = np.asarray(list(sizes.values())) ** alpha
        expected = len(batches) * weights / weights.sum()
        return float(chisquare([counts[language] for language in sizes], expected).pvalue)

    assert compute_p(0.5) > 0.01
    assert max(compute_p(alpha) for alpha in (0, 0.4, 0.6, 1)) < 1e-6
