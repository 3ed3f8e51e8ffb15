"""Trains the siamese network of the CoSQA paper, alone or with CoCLR (Huang et al. 2021, *CoSQA*, section 5).

q_i and c_i are the encoder's vectors of the query and the snippet of example i, y_i is its label, and s(i, j) is the
score of query i and snippet j. ⊙ is the element-wise product. The encoder returns the hidden state of [CLS] (equation
1), or with `pooling="mean"` the mean over all tokens.

    r(i, j) = tanh(W1 · [q_i, c_j, q_i − c_j, q_i ⊙ c_j])                        (2)
    s(i, j) = sigmoid(W2 · r(i, j))
    L_b     = −[y_i · log s(i, i) + (1 − y_i) · log(1 − s(i, i))]                 (3)
    L       = L_b + L_ib + L_qr                                                   (4)
    L_ib    = −1/(n − 1) · Σ_{j ≠ i} log(1 − s(i, j))    n examples in the batch  (5)
    L_qr    = L_b' + L_ib'    with a rewritten query in place of q_i, if y_i = 1  (6)

L_ib is used with `in_batch` (in-batch augmentation), and L_qr with `rewrite` (query-rewritten augmentation). Together
they give the eight rows of Table 6. Without `in_batch`, equation 6 has no L_ib': a rewritten pair adds its own loss
only. The paper implies this: its Table 6 has rows with query-rewritten augmentation alone. The loss of a batch is the
mean over its n examples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from agent.retrieval.searchers.siamese import Head
from agent.training.base import check_exists, load_base
from agent.training.recipe import Form, Hyperparameters

BASE = "microsoft/codebert-base"


class SiameseLoss(torch.nn.Module):  # type: ignore[misc]
    """Computes the loss of a batch (see the module docstring).

    The columns of the features are query, code and, if queries are rewritten, rewritten query. Rewritten queries of
    examples with label 0 are ignored.
    """

    def __init__(self, model: Any, settings: Hyperparameters) -> None:
        super().__init__()
        self.model = model
        self._in_batch = settings.in_batch
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            self.head = Head(model.get_embedding_dimension())

    def forward(self, features: Sequence[Mapping[str, Any]], labels: torch.Tensor) -> torch.Tensor:
        """Return the mean loss over the examples. `labels` has shape (examples,)."""
        queries, codes = (self.model(dict(column))["sentence_embedding"] for column in features[:2])
        total = self._sum_losses(queries, codes, labels, torch.arange(len(labels), device=labels.device))
        positives = labels.nonzero().squeeze(1)
        if len(features) > 2 and len(positives):
            tensors = {name: value for name, value in features[2].items() if isinstance(value, torch.Tensor)}
            rewritten = {**features[2], **{name: value[positives] for name, value in tensors.items()}}
            vectors = self.model(rewritten)["sentence_embedding"]
            total = total + self._sum_losses(vectors, codes, labels, positives)
        return total / len(labels)

    def _sum_losses(
        self, queries: torch.Tensor, codes: torch.Tensor, labels: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        """Sum equations 3 and 5 over queries. `positions` has the position of each query's snippet."""
        targets = labels[positions].to(queries.dtype)
        if not self._in_batch:
            scores = self.head(queries, codes[positions])
            return binary_cross_entropy_with_logits(scores, targets, reduction="sum")
        scores = self.head(queries[:, None], codes)
        is_pair = torch.nn.functional.one_hot(positions, len(codes)).to(queries.dtype)
        # the loss of a score with target 0 is −log(1 − s)
        losses = binary_cross_entropy_with_logits(scores, is_pair * targets[:, None], reduction="none")
        weights = is_pair + (1 - is_pair) / max(1, len(codes) - 1)
        return (weights * losses).sum()


class Siamese:
    """The siamese network with binary cross entropy. `in_batch` and `rewrite` add the parts of CoCLR.

    The defaults are the paper's for code question answering (section 6.1): AdamW, batches of 32, learning rate 1e-5 and
    10% warm-up. For code search, the paper's learning rate is 1e-6. The paper gives neither the number of epochs nor
    the maximum number of tokens.
    """

    name = "siamese"
    source = "Huang et al. 2021, CoSQA (arXiv:2105.13239), sections 5.1 and 6.1"
    form: Form = "labels"
    defaults = Hyperparameters(batch_size=32, learning_rate=1e-5, warmup=0.1, pooling="cls")
    unused = frozenset({"contrast", "hard_negatives", "mini_batch", "mix", "temperature"})

    def choose_base(self, base: str | None) -> str:
        """See `Recipe`. The default is CodeBERT.

        Raises:
            UsageError: CodeBERT is not available.
        """
        if base is None:
            check_exists(BASE)
        return base or BASE

    def make_model(self, base: str, data: Any, settings: Hyperparameters, progress: Any) -> Any:  # noqa: ARG002
        """See `Recipe`. The vectors are not scaled to length 1."""
        model = load_base(base, pooling=settings.pooling or "cls", max_tokens=settings.max_tokens)
        model.similarity_fn_name = "dot"
        return model

    def make_loss(self, model: Any, settings: Hyperparameters) -> SiameseLoss:
        return SiameseLoss(model, settings)

    def make_scorer(self, loss: SiameseLoss) -> Callable[[Any, Any], Any]:
        """See `Recipe`. The scores are W2 · r, which ranks like s."""
        score: Callable[[Any, Any], Any] = loss.head.score_all
        return score


class CoClr(Siamese):
    """The siamese network with in-batch augmentation and switched words, the best row of Table 6."""

    name = "coclr"
    source = "Huang et al. 2021, CoSQA (arXiv:2105.13239), sections 5.2 and 6.1"
    defaults = Siamese.defaults.model_copy(update={"in_batch": True, "rewrite": "switch"})
