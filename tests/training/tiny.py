"""Tiny training data and base models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.datasets.benchmark import Benchmark
from agent.datasets.mutants import Contrast, MutantRecord
from agent.retrieval.searchers.trained import ContrastRecord
from agent.training.contrasts import Contrasts
from agent.training.data import TrainingData, TrainingPair

WORDS = ("sort", "open", "merge", "parse", "count", "reverse", "join", "split", "hash", "zip", "sum", "max")
QUERIES = tuple(f"how to {word} quuxly things" for word in WORDS)
CODES = tuple(f"def {word}_zorgly(x):\n    return {word}(x)" for word in WORDS)


def make_data(**changes: Any) -> TrainingData:
    """Return a positive and a negative pair for each of 12 queries, and a validation benchmark of three others."""
    numbers = range(len(WORDS))
    pairs = [TrainingPair(n, n, 1) for n in numbers] + [TrainingPair(n, (n + 1) % len(WORDS), 0) for n in numbers]
    values = {
        "name": "tiny", "queries": QUERIES, "codes": CODES, "pairs": pairs, "languages": ["python"] * len(WORDS),
        "query_groups": list(numbers), "code_clusters": list(numbers), "validation": make_benchmark("validation"),
        "labels": {"1": 12, "0": 12}, "sha256": "0" * 64,
    }  # fmt: skip
    return TrainingData(**(values | changes))


def make_contrasts() -> Contrasts:
    """Return a mutant of the snippet of each query, which calls another function."""
    record = MutantRecord(of="", kind="swapped_call", change="", check="inputs")
    rows = [
        Contrast(word, query, code, code.replace(f"return {word}", f"return {other}"), "python", record)
        for word, other, query, code in zip(WORDS, WORDS[::-1], QUERIES, CODES, strict=True)
    ]
    summary = ContrastRecord(name="mutants.jsonl", count=len(rows), functions=len(rows), sha256="1" * 64)
    return Contrasts(rows, range(len(rows)), summary)


def make_benchmark(name: str) -> Benchmark:
    """Return three queries with a relevant and another code each."""
    queries = {str(n): f"{name} query {n}" for n in range(3)}
    codes = {str(n): f"def {name}_{n}(): return {n}" for n in range(6)}
    return Benchmark(name, queries, codes, {query: {query: 1, str(int(query) + 3): 0} for query in queries})


def save_bert(folder: Path) -> Path:
    """Save a BERT model with dropout, 2 layers, 16 dimensions and 64 tokens, and its tokenizer."""
    import torch
    from transformers import BertConfig, BertModel

    from tests.retrieval.searchers.tiny_models import make_tokenizer

    torch.manual_seed(1)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=300, max_position_embeddings=64, pad_token_id=1, **sizes)).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def save_t5(folder: Path) -> Path:
    """Save a T5 model with 2 layers and 16 dimensions, and its tokenizer."""
    import torch
    from transformers import T5Config, T5Model

    from tests.retrieval.searchers.tiny_models import make_tokenizer

    torch.manual_seed(1)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    T5Model(T5Config(vocab_size=300, pad_token_id=1, decoder_start_token_id=1, **sizes)).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder
