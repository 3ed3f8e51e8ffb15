"""The loss of the recipe `biencoder`, compared with an independent computation in NumPy."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.errors import UsageError
from agent.training.recipe import RECIPES, Hyperparameters
from tests.retrieval.searchers.tiny_models import save_sentence_transformer

pytestmark = pytest.mark.embed
Array = np.ndarray[Any, np.dtype[np.float64]]

BATCH, COLUMNS, FEATURES, DIMENSIONS = 5, 4, 6, 3


def load_recipe(name: str) -> Any:
    module, _, recipe = RECIPES[name].partition(":")
    return getattr(import_module(f"agent.training.{module}"), recipe)()


def compute_loss(weight: Array, texts: Array, temperature: float) -> float:
    """Compute InfoNCE row by row for the vectors `texts @ weight`. `texts` has the shape columns × batch × features."""
    vectors = texts @ weight
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    losses = []
    for number, query in enumerate(vectors[0]):
        exponentials = [[np.exp(query @ code / temperature) for code in column] for column in vectors[1:]]
        losses.append(-np.log(exponentials[0][number] / np.sum(exponentials)))
    return float(np.mean(losses))


def estimate_gradient(weight: Array, texts: Array, temperature: float) -> Array:
    gradient = np.zeros_like(weight)
    for place in np.ndindex(weight.shape):
        change = np.zeros_like(weight)
        change[place] = 1e-6
        above, below = (compute_loss(weight + sign * change, texts, temperature) for sign in (1, -1))
        gradient[place] = (above - below) / 2e-6
    return gradient


def compare_loss(name: str, settings: Hyperparameters) -> None:
    """Compare loss and gradient of a recipe with NumPy, for a linear model in float64."""
    import torch
    from sentence_transformers import SentenceTransformer

    class Linear(torch.nn.Module):
        def __init__(self, weight: Array) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.from_numpy(weight.copy()))

        def forward(self, features: dict[str, Any]) -> dict[str, Any]:
            return {**features, "sentence_embedding": features["input_ids"] @ self.weight}

    random = np.random.default_rng(1)
    weight, texts = random.normal(size=(FEATURES, DIMENSIONS)), random.normal(size=(COLUMNS, BATCH, FEATURES))
    model = SentenceTransformer(modules=[Linear(weight)], device="cpu")
    loss = load_recipe(name).make_loss(model, settings)
    value = loss([{"input_ids": torch.from_numpy(column)} for column in texts], None)
    value.backward()
    assert value.dtype == torch.float64
    assert value.item() == pytest.approx(compute_loss(weight, texts, settings.temperature), abs=1e-6)
    gradient = model[0].weight.grad.numpy()
    assert gradient == pytest.approx(estimate_gradient(weight, texts, settings.temperature), rel=1e-5, abs=1e-6)
    assert np.abs(gradient).max() > 0.01


@pytest.mark.parametrize("mini_batch", [None, 2])
@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_loss_and_gradient_equal_an_independent_computation(mini_batch: int | None, temperature: float) -> None:
    compare_loss("biencoder", Hyperparameters(temperature=temperature, mini_batch=mini_batch))


def test_the_model_is_the_base_with_the_chosen_pooling_and_limit(tmp_path: Path) -> None:
    settings = Hyperparameters(pooling="cls", max_tokens=9)
    model = load_recipe("biencoder").make_model(str(save_sentence_transformer(tmp_path / "base")), None, settings)
    assert (model[1].pooling_mode, model.max_seq_length) == ("cls", 9)


def test_a_missing_base_is_an_error() -> None:
    with pytest.raises(UsageError):
        load_recipe("biencoder").make_model(None, None, Hyperparameters())


def test_scores_are_cosines() -> None:
    import torch

    scores = load_recipe("biencoder").make_scorer(None)(torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0], [3, 4]]))
    assert np.asarray(scores) == pytest.approx(np.asarray([[0.6, 1.0]]))
