"""The recipes `biencoder` and `macp`: the loss, compared with an independent computation in NumPy, and equation 2."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from agent.errors import UsageError
from agent.training.recipe import Hyperparameters, load_recipe
from agent.training.rows import EpochRows
from tests.training.test_rows import make_data

pytestmark = pytest.mark.embed
Array = np.ndarray[Any, np.dtype[np.float64]]


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


@pytest.mark.parametrize("mini_batch", [None, 2])
@pytest.mark.parametrize(("name", "temperature"), [("biencoder", 0.05), ("biencoder", 0.5), ("macp", 0.01)])
def test_loss_and_gradient_equal_an_independent_computation(name: str, temperature: float, mini_batch: Any) -> None:
    """The model is linear, in float64."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense

    linear = Dense(6, 3, bias=False, activation_function=torch.nn.Identity())
    model = SentenceTransformer(modules=[linear], device="cpu").double()
    random = np.random.default_rng(1)
    weight, texts = random.normal(size=(6, 3)), random.normal(size=(4, 5, 6))
    linear.linear.weight.data = torch.from_numpy(weight.T.copy())
    recipe = load_recipe(name)
    settings = recipe.defaults.model_copy(update={"temperature": temperature, "mini_batch": mini_batch})
    value = recipe.make_loss(model, settings)(
        [{"sentence_embedding": torch.from_numpy(column)} for column in texts], None
    )
    value.backward()
    assert value.dtype == torch.float64
    assert value.item() == pytest.approx(compute_loss(weight, texts, temperature), abs=1e-6)
    gradient = linear.linear.weight.grad.numpy().T
    assert gradient == pytest.approx(estimate_gradient(weight, texts, temperature), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_loss_of_contrasts_equals_an_independent_computation(size: int) -> None:
    import torch
    from sentence_transformers import SentenceTransformer

    from agent.training.biencoder import ContrastLoss

    model = SentenceTransformer(modules=[torch.nn.Identity()], device="cpu")
    texts = np.random.default_rng(2).normal(size=(6, size, 5))  # query, code, negative, and a contrast
    columns = [torch.tensor(column, requires_grad=True) for column in texts]
    settings = Hyperparameters(temperature=0.1)
    value = ContrastLoss(model, settings)([{"sentence_embedding": column} for column in columns], None)
    expected = sum(compute_loss(np.eye(5), part, 0.1) for part in (texts[:3], texts[3:5]))
    queries, right, wrong = texts[3:] / np.linalg.norm(texts[3:], axis=-1, keepdims=True)
    margins = [[(query @ right[row] - query @ wrong[row]) / 0.02 for query in queries] for row in range(size)]
    if pairs := [(margins[row][row], margins[row][column]) for row, column in permutations(range(size), 2)]:
        expected += np.mean([np.log1p(np.exp(other - own)) for own, other in pairs])
        expected += np.mean([other for _, other in pairs]) ** 2
    assert value.item() == pytest.approx(expected)
    value.backward()
    assert all(column.grad is not None and column.grad.isfinite().all() for column in columns[: 6 if pairs else 5])


def test_a_biencoder_needs_a_base_model() -> None:
    with pytest.raises(UsageError):
        load_recipe("biencoder").choose_base(None)


def test_scores_are_cosines() -> None:
    scores = load_recipe("biencoder").make_scorer(None)([[3.0, 4.0]], [[1.0, 0.0], [3.0, 4.0]])
    assert np.asarray(scores) == pytest.approx(np.asarray([[0.6, 1.0]]))


def test_the_share_of_batches_by_language_follows_equation_2() -> None:
    sizes = {"python": 900, "java": 100, "go": 25}
    languages = [language for language, size in sizes.items() for _ in range(size)]
    data = make_data([(code, code, 1) for code in range(1025)], 1025, languages=languages)
    recipe = load_recipe("macp")
    assert recipe.defaults.temperature == 0.01
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
