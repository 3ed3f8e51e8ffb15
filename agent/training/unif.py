"""Implements the recipe `unif`, the supervised extension of NCS that the NCS paper evaluates.

Source: Cambronero et al., *When Deep Learning Met Code Search* (arXiv:1905.03813). `agent/retrieval/searchers/unif.py`
has the equations. Both tables of word vectors start from the vectors of NCS, which gensim trains with fastText on the
training snippets. The attention vector starts at 0, so an untrained snippet vector is the mean of its word vectors. The
loss of n queries is InfoNCE with temperature τ. c_i is the relevant snippet of q_i, and j runs over all snippets of
the batch:

    L = −1/n · Σ_i ln( exp(cos(q_i, c_i) / τ) / Σ_j exp(cos(q_i, c_j) / τ) )

The loss, the margin and the negatives of the paper could not be checked. InfoNCE with in-batch negatives is our choice,
and so are the hyperparameters. On docstrings of CoSQA's functions, τ = 0.05 had a higher MRR than 0.02 and 0.1 (one
seed).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.util import cos_sim

from agent.errors import UsageError
from agent.retrieval.searchers.ncs import train_word_vectors
from agent.retrieval.searchers.unif import UnifEncoder
from agent.training.data import TrainingData
from agent.training.recipe import Form, Hyperparameters
from agent.types import Progress


class Unif:
    """Trains UNIF. There is no base model. Texts are not truncated."""

    name = "unif"
    source = "Cambronero et al. 2019, arXiv:1905.03813; the loss and the hyperparameters are ours"
    form: Form = "ranking"
    defaults = Hyperparameters(epochs=10, batch_size=64, learning_rate=2e-3, max_tokens=None, temperature=0.05)
    unused = frozenset({
        "contrast", "in_batch", "max_tokens", "mini_batch", "mix", "pooling", "precision", "rewrite",
    })  # fmt: skip

    def choose_base(self, base: str | None) -> None:
        if base is not None:
            raise UsageError(f"unif trains its own word vectors, so it has no base model. Remove --base {base}")

    def make_model(self, base: None, data: TrainingData, settings: Hyperparameters, progress: Progress) -> Any:  # noqa: ARG002
        """Train word vectors on the snippets, and return the untrained model, on the CPU.

        Raises:
            UsageError: no word occurs in the snippets at least twice.
        """
        words = train_word_vectors(self.name, data.codes, progress, seed=settings.seed)
        queries = torch.tensor(words.vectors)
        codes = torch.tensor(words.vectors)
        encoder = UnifEncoder(words.index_to_key, queries, codes, torch.zeros(words.vector_size))
        return SentenceTransformer(modules=[encoder], device="cpu")

    def make_loss(self, model: SentenceTransformer, settings: Hyperparameters) -> MultipleNegativesRankingLoss:
        return MultipleNegativesRankingLoss(model, scale=1 / settings.temperature)

    def make_scorer(self, loss: Any) -> Callable[[Any, Any], Any]:  # noqa: ARG002
        return lambda queries, codes: cos_sim(queries, codes)
