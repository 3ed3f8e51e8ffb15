"""Trains a bi-encoder with in-batch negatives."""

from __future__ import annotations

from typing import Any

from sentence_transformers.sentence_transformer import losses
from sentence_transformers.util import cos_sim

from agent.errors import UsageError
from agent.training.base import load_base
from agent.training.recipe import Form, Hyperparameters


class BiEncoder:
    """InfoNCE over cosine similarities.

    For a batch of queries q_i, relevant codes c_i and hard negatives h_i1 … h_iN, with temperature τ:

        D   = {c_1, …, c_b, h_11, …, h_bN}
        L_i = −log( exp(cos(q_i, c_i) / τ) / Σ_{d ∈ D} exp(cos(q_i, d) / τ) )
        L   = 1/b Σ_i L_i

    Section V of the CoSQA+ paper fine-tunes CodeBERT, UniXcoder and CodeT5+ on individual query-code pairs (Table III).
    It states the data and their splits, but not the loss, the negatives or any hyperparameter. Nothing is claimed here
    about the training behind Table III.

    With `mini_batch`, the loss is computed with cached gradients: the same loss, with less memory and more time.
    """

    name = "biencoder"
    source = "InfoNCE (arXiv 1807.03748)"
    form: Form = "ranking"
    defaults = Hyperparameters()
    unused = frozenset({"in_batch", "rewrite"})

    def choose_base(self, base: str | None) -> str:
        if base is None:
            raise UsageError(f"The recipe {self.name} trains a pretrained model. Name one with --base.")
        return base

    def make_model(self, base: str, data: Any, settings: Hyperparameters, progress: Any) -> Any:  # noqa: ARG002
        return load_base(base, pooling=settings.pooling, max_tokens=settings.max_tokens)

    def make_loss(self, model: Any, settings: Hyperparameters) -> Any:
        scale = 1 / settings.temperature
        if settings.mini_batch is None:
            return losses.MultipleNegativesRankingLoss(model, scale=scale)
        return losses.CachedMultipleNegativesRankingLoss(model, scale=scale, mini_batch_size=settings.mini_batch)

    def make_scorer(self, loss: Any) -> Any:  # noqa: ARG002
        return cos_sim
