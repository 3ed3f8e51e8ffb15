"""The losses of the CoSQA paper (section 5), compared with NumPy computations that follow its equations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from agent.training.recipe import Hyperparameters

pytestmark = pytest.mark.embed

DIMENSIONS = 3
QUERIES = ([1, 2, 3], [4, 1], [2, 5, 6, 3], [6, 6])
CODES = ([7, 1], [8, 9, 2], [3, 8], [9, 9, 4, 5])
LABELS = [1, 0, 1, 1]
REWRITINGS: Mapping[str, Sequence[Sequence[int]]] = {
    "none": (),
    "delete": ([1, 3], [4, 1], [2, 5, 3], [6]),
    "copy": ([1, 2, 1, 3], [4, 1], [2, 5, 6, 3, 6], [6, 6, 6]),
    "switch": ([3, 2, 1], [4, 1], [5, 2, 6, 3], [6, 6]),
}
TABLE_6 = [(in_batch, rewrite) for in_batch in (False, True) for rewrite in REWRITINGS]


def make_encoder() -> Any:
    """Create an encoder in float64 whose vectors depend on the order of words."""
    import torch

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = torch.nn.Embedding(10, DIMENSIONS, dtype=torch.float64)

        def get_embedding_dimension(self) -> int:
            return DIMENSIONS

        def forward(self, features: dict[str, Any]) -> dict[str, Any]:
            ids, mask = features["input_ids"], features["attention_mask"]
            places = torch.arange(1, ids.shape[1] + 1)
            features["sentence_embedding"] = (self.words(ids) * (places * mask)[..., None]).sum(1)
            return features

    return Encoder()


def make_features(texts: Sequence[Sequence[int]]) -> dict[str, Any]:
    import torch

    width = max(map(len, texts))
    ids = torch.tensor([[*text, *[0] * (width - len(text))] for text in texts])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "modality": "text"}


def make_loss(*, in_batch: bool = False, seed: int = 1) -> Any:
    """Create the loss of an encoder, with weights that are large enough to leave the linear part of tanh."""
    import torch

    from agent.training.siamese import SiameseLoss

    torch.manual_seed(seed)
    loss = SiameseLoss(make_encoder(), Hyperparameters(in_batch=in_batch, seed=seed)).double()
    with torch.no_grad():
        for weights in loss.parameters():
            weights.copy_(torch.randn(weights.shape, dtype=torch.float64) / 2)
    return loss


def get_weights(loss: Any) -> list[np.ndarray[Any, Any]]:
    """Return copies of the word vectors, W1 and W2."""
    return [w.detach().numpy().copy() for w in (loss.model.words.weight, loss.head.w1.weight, loss.head.w2.weight)]


def compute_loss(weights: Sequence[Any], labels: Sequence[int], rewritten: Any, *, in_batch: bool) -> float:
    """Compute equations 2 to 6 for each example, and return the mean."""
    words, w1, w2 = weights
    count = len(labels)

    def score(query: Sequence[int], code: Sequence[int]) -> float:
        q, c = (np.sum([place * words[word] for place, word in enumerate(text, 1)], axis=0) for text in (query, code))
        relation = np.tanh(w1 @ np.concatenate([q, c, q - c, q * c]))
        return float(1 / (1 + np.exp(-(w2 @ relation)[0])))

    def compute_example(i: int, query: Sequence[int]) -> float:
        s = score(query, CODES[i])
        total = -(labels[i] * np.log(s) + (1 - labels[i]) * np.log(1 - s))
        if in_batch and count > 1:
            others = [np.log(1 - score(query, CODES[j])) for j in range(count) if j != i]
            total -= sum(others) / (count - 1)
        return float(total)

    losses = [compute_example(i, QUERIES[i]) for i in range(count)]
    losses += [compute_example(i, rewritten[i]) for i in range(count) if rewritten and labels[i] == 1]
    return sum(losses) / count


def compute_torch_loss(loss: Any, labels: Sequence[int], rewritten: Sequence[Sequence[int]]) -> Any:
    import torch

    count = len(labels)
    columns = [QUERIES[:count], CODES[:count], *([rewritten[:count]] if rewritten else [])]
    return loss([make_features(texts) for texts in columns], torch.tensor(labels))


@pytest.mark.parametrize("labels", [LABELS, [0, 0, 0, 0], [1, 1, 1, 1], [1], [0]])
@pytest.mark.parametrize(("in_batch", "rewrite"), TABLE_6)
def test_the_loss_follows_the_equations(in_batch: bool, rewrite: str, labels: list[int]) -> None:
    loss, rewritten = make_loss(in_batch=in_batch), REWRITINGS[rewrite]
    expected = compute_loss(get_weights(loss), labels, rewritten, in_batch=in_batch)
    assert compute_torch_loss(loss, labels, rewritten).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("in_batch", "rewrite"), TABLE_6)
def test_gradients_are_finite_differences(in_batch: bool, rewrite: str) -> None:
    loss, rewritten = make_loss(in_batch=in_batch), REWRITINGS[rewrite]
    compute_torch_loss(loss, LABELS, rewritten).backward()
    weights, step = get_weights(loss), 1e-5
    gradients = [part.weight.grad.numpy() for part in (loss.model.words, loss.head.w1, loss.head.w2)]
    for table, gradient in zip(weights, gradients, strict=True):
        for index in np.ndindex(table.shape):
            value, sides = table[index], []
            for shifted in (value + step, value - step):
                table[index] = shifted
                sides.append(compute_loss(weights, LABELS, rewritten, in_batch=in_batch))
            table[index] = value
            assert gradient[index] == pytest.approx((sides[0] - sides[1]) / (2 * step), abs=1e-6)


def test_the_loss_is_finite_for_extreme_scores() -> None:
    import torch

    loss = make_loss(in_batch=True)
    with torch.no_grad():
        loss.head.w2.weight.mul_(1e6)
    value = compute_torch_loss(loss, LABELS, ())
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(loss.model.words.weight.grad).all()


def test_recipes_have_the_hyperparameters_of_the_paper() -> None:
    from agent.training.siamese import CoClr, Siamese

    for recipe, in_batch, rewrite in ((Siamese(), False, "none"), (CoClr(), True, "switch")):
        settings = recipe.defaults
        assert (settings.batch_size, settings.learning_rate, settings.warmup) == (32, 1e-5, 0.1)
        assert (settings.pooling, settings.in_batch, settings.rewrite) == ("cls", in_batch, rewrite)
