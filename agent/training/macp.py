"""Trains a bi-encoder with modality-agnostic contrastive pre-training (MACP), section 4 of the ProCQA paper."""

from __future__ import annotations

from agent.training.biencoder import BiEncoder
from agent.training.recipe import Hyperparameters


class Macp(BiEncoder):
    """Contrastive training on questions and answers that may hold text, code or both.

    Vectors are means over the last layer's token vectors, and s(q, d) is their cosine. For a question q with answer d,
    negatives D⁻ and temperature τ = 0.01, equation 1 is

        L = −log( exp(s(q, d) / τ) / (exp(s(q, d) / τ) + Σ_{d′ ∈ D⁻} exp(s(q, d′) / τ)) )

    where D⁻ also has the answers and negatives of the other rows of the batch. All rows of a batch are from one
    language. By equation 2, language i with n_i rows is drawn with probability

        p_i = n_i^α / Σ_j n_j^α,  α = 0.5

    The learning rate rises during the first 10% of the steps and then falls linearly. `defaults` is the preset for
    fine-tuning: peak 2e-5, 3 epochs, batches of 128, 512 tokens, 7 random negatives for each row. Here, codes with
    label 0 come before random codes. The paper fine-tunes on one data set at a time, without equation 2. For data in
    one language, equation 2 changes nothing.

    The preset for pre-training: peak 2e-4, 10,000 steps, batches of 6192, 128 tokens, in-batch negatives only
    (`hard_negatives` None), starting from GraphCodeBERT. `mini_batch` makes such batches fit.
    """

    name = "macp"
    source = "ProCQA, section 4 (arXiv 2403.16702)"
    defaults = Hyperparameters(
        epochs=3, batch_size=128, learning_rate=2e-5, warmup=0.1, max_tokens=512, hard_negatives=7,
        pooling="mean", temperature=0.01, alpha=0.5,
    )  # fmt: skip
