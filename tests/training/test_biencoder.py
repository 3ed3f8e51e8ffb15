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


def load_recipe(name: str) -> Any:
    module, recipe = RECIPES[name].split(":")
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
    changes = 1e-6 * np.eye(weight.size).reshape(-1, *weight.shape)
    above, below = ([compute_loss(weight + sign * step, texts, temperature) for step in changes] for sign in (1, -1))
    return (np.asarray(above) - np.asarray(below)).reshape(weight.shape) / 2e-6


def compare_loss(name: str, settings: Hyperparameters) -> None:
    """Compare loss and gradient of a recipe with NumPy, for a linear model in float64."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense

    linear = Dense(6, 3, bias=False, activation_function=torch.nn.Identity())
    model = SentenceTransformer(modules=[linear], device="cpu").double()
    random = np.random.default_rng(1)
    weight, texts = random.normal(size=(6, 3)), random.normal(size=(4, 5, 6))
    linear.linear.weight.data = torch.from_numpy(weight.T.copy())
    loss = load_recipe(name).make_loss(model, settings)
    value = loss([{"sentence_embedding": torch.from_numpy(column)} for column in texts], None)
    value.backward()
    assert value.dtype == torch.float64
    assert value.item() == pytest.approx(compute_loss(weight, texts, settings.temperature), abs=1e-6)
    gradient = linear.linear.weight.grad.numpy().T
    assert gradient == pytest.approx(estimate_gradient(weight, texts, settings.temperature), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("mini_batch", [None, 2])
@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_loss_and_gradient_equal_an_independent_computation(mini_batch: int | None, temperature: float) -> None:
    compare_loss("biencoder", Hyperparameters(temperature=temperature, mini_batch=mini_batch))


def test_the_model_is_the_given_base_with_the_chosen_pooling_and_limit(tmp_path: Path) -> None:
    recipe, settings = load_recipe("biencoder"), Hyperparameters(pooling="cls", max_tokens=9)
    model = recipe.make_model(str(save_sentence_transformer(tmp_path / "base")), None, settings, None)
    assert (model[1].pooling_mode, model.max_seq_length) == ("cls", 9)
    with pytest.raises(UsageError):
        recipe.choose_base(None)


def test_scores_are_cosines() -> None:
    scores = load_recipe("biencoder").make_scorer(None)([[3.0, 4.0]], [[1.0, 0.0], [3.0, 4.0]])
    assert np.asarray(scores) == pytest.approx(np.asarray([[0.6, 1.0]]))
