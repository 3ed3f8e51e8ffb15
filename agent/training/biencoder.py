"""Trains a bi-encoder with in-batch negatives, and with the settings of the ProCQA paper (MACP)."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.util import cos_sim

from agent.errors import UsageError
from agent.training.base import load_base
from agent.training.recipe import Form, Hyperparameters

_MARGIN_TEMPERATURE = 0.02


class ContrastLoss(losses.MultipleNegativesRankingLoss):  # type: ignore[misc]
    """InfoNCE, and the margin of right code over a mutant under its own query, compared with other queries.

    For contrasts with queries q_i, right code r_i and mutants w_i, with τ = 0.02:

        m_ij = (cos(q_j, r_i) − cos(q_j, w_i)) / τ
        L    = L(pairs) + L(q, r) + C + B²
        C    = mean over i ≠ j of log(1 + exp(m_ij − m_ii))
        B    = mean over i ≠ j of m_ij

    L(pairs) and L(q, r) are the losses of `BiEncoder`, of the pairs and of the queries with the right code. A model
    that only learns what mutants look like has m_ii = m_ij, and gains nothing. B keeps it from preferring or avoiding
    mutants under wrong queries. The last three columns of the features are q, r and w. Dropout is off, because its
    noise is larger than the margins.
    """

    def __init__(self, model: Any, settings: Hyperparameters) -> None:
        super().__init__(model, scale=1 / settings.temperature)
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0

    def compute_loss_from_embeddings(self, embeddings: Any, labels: Any) -> torch.Tensor:
        *pairs, queries, right, wrong = embeddings
        ranking: torch.Tensor = sum(super(ContrastLoss, self).compute_loss_from_embeddings(columns, labels)
                                    for columns in (pairs, [queries, right]))  # fmt: skip
        if len(queries) == 1:  # no wrong query
            return ranking
        change = torch.nn.functional.normalize(right, dim=1) - torch.nn.functional.normalize(wrong, dim=1)
        margins = change @ torch.nn.functional.normalize(queries, dim=1).T / _MARGIN_TEMPERATURE  # m_ij
        is_wrong = ~torch.eye(len(margins), dtype=torch.bool, device=margins.device)
        differences = (margins.diagonal()[:, None] - margins)[is_wrong]
        contrast = torch.nn.functional.softplus(-differences).mean()
        return ranking + (contrast + margins[is_wrong].mean().square())


class BiEncoder:
    """InfoNCE over cosine similarities.

    For a batch of queries q_i, relevant snippets c_i and hard negatives h_i1 … h_iN, with temperature τ:

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


class Macp(BiEncoder):
    """Modality-agnostic contrastive pre-training: questions and answers may hold text, code or both.

    Vectors are means over the last layer's token vectors, and s(q, d) is their cosine. For a question q with answer d,
    negatives D⁻ and temperature τ = 0.01, equation 1 is

        L = −log( exp(s(q, d) / τ) / (exp(s(q, d) / τ) + Σ_{d′ ∈ D⁻} exp(s(q, d′) / τ)) )

    where D⁻ also has the answers and negatives of the other rows of the batch. All rows of a batch are from one
    language. By equation 2, language i with n_i rows is drawn with probability

        p_i = n_i^α / Σ_j n_j^α,  α = 0.5

    The learning rate rises during the first 10% of the steps and then falls linearly. `defaults` is the preset for
    fine-tuning: peak 2e-5, 3 epochs, batches of 128, 512 tokens, 7 random negatives for each row. Here, snippets
    with label 0 come before random snippets. The paper fine-tunes on one data set at a time, without equation 2. For
    data in one language, equation 2 changes nothing.

    The preset for pre-training: peak 2e-4, 10,000 steps, batches of 6192, 128 tokens, in-batch negatives only
    (`hard_negatives` None), starting from GraphCodeBERT. `mini_batch` makes such batches fit.
    """

    name = "macp"
    source = "ProCQA, section 4 (arXiv 2403.16702)"
    defaults = Hyperparameters(
        epochs=3, batch_size=128, learning_rate=2e-5, warmup=0.1, max_tokens=512, hard_negatives=7,
        pooling="mean", temperature=0.01, alpha=0.5,
    )  # fmt: skip
