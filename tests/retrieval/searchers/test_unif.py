"""UNIF: vectors follow the equations, and folders are not trusted."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import RunFolderError

pytestmark = pytest.mark.embed

WORDS = ["read", "write", "lines", "path", "sort"]
TEXTS = ["read lines", "read read read path", "sort unheard", "unheard", "", "WRITE, lines(path); sort"]
ZEROS = np.zeros((5, 3), "float32")
VOCABULARIES = [b"{", b"[]", b'{"words": [1, 2, 3, 4, 5]}', b'{"words": []}', b'{"words": ["read"]}', None, "link"]
HEADERS = [None, "link", b"", *(size.to_bytes(8, "little") + b"{}" for size in (2, 3, 10**9))]
NO_DIMENSIONS = {"queries": ZEROS[:, :0], "codes": ZEROS[:, :0], "attention": ZEROS[0, :0]}
WRONG_SHAPES = [{"codes": None}, {"attention": None}, {"bias": ZEROS}, {"attention": ZEROS[0, :2]}, NO_DIMENSIONS]
WRONG_VALUES = [{"queries": ZEROS.astype("float64")}, {"codes": ZEROS + np.nan}]


def make_encoder(dtype: str = "float32", seed: int = 0) -> Any:
    """Create a UNIF module with 3 dimensions and random weights."""
    import torch

    from agent.retrieval.searchers.unif import UnifEncoder

    random = np.random.default_rng(seed)
    return UnifEncoder(
        WORDS, *(torch.from_numpy(random.normal(size=size).astype(dtype)) for size in ((5, 3), (5, 3), 3))
    )


def save_encoder(folder: Path, seed: int = 0) -> Path:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(modules=[make_encoder(seed=seed)], device="cpu")
    model.save_pretrained(str(folder), create_model_card=False)
    return folder


def make_embedder(folder: Path) -> Any:
    from agent.retrieval.searchers.unif import UnifEmbedder

    return UnifEmbedder(folder)


def compute_vectors(encoder: Any, texts: list[str], task: str | None) -> np.ndarray[Any, Any]:
    return np.asarray(encoder(encoder.preprocess(texts, task=task))["sentence_embedding"].detach())


@given(
    texts=st.lists(st.lists(st.sampled_from([*WORDS, "unheard"])), min_size=1),
    task=st.sampled_from(["query", "document"]),
    scale=st.sampled_from([1, 1e6]),
)
def test_vectors_follow_the_equations(texts: list[list[str]], task: str, scale: float) -> None:
    encoder = make_encoder("float64")
    encoder.attention.data *= scale  # exp must not overflow
    table, attention = (encoder.queries, 0) if task == "query" else (encoder.codes, encoder.attention.detach().numpy())
    for text, vector in zip(texts, compute_vectors(encoder, list(map(" ".join, texts)), task), strict=True):
        vectors = np.array([table[WORDS.index(word)].detach().numpy() for word in text if word in WORDS]).reshape(-1, 3)
        scores = (vectors * attention).sum(axis=1)
        weights = np.exp(scores - scores.max(initial=-np.inf))
        assert vector == pytest.approx(weights @ vectors / (weights.sum() or 1), abs=1e-6)


def test_texts_of_another_kind_have_no_vectors() -> None:
    with pytest.raises(ValueError, match="UNIF"):
        compute_vectors(make_encoder(), TEXTS, None)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *product(["vocabulary.json"], VOCABULARIES),
        *product(["model.safetensors"], HEADERS + WRONG_SHAPES + WRONG_VALUES),
    ],
)
def test_a_folder_with_a_damaged_file_raises_an_error(tmp_path: Path, name: str, content: Any) -> None:
    from safetensors.numpy import load_file, save

    path = save_encoder(tmp_path) / name
    if isinstance(content, dict):  # weights that replace others
        weights = {**load_file(path), **content}
        content = save({key: np.ascontiguousarray(array) for key, array in weights.items() if array is not None})
    path.rename(tmp_path / "moved")
    if content == "link":
        path.symlink_to(tmp_path / "moved")
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(RunFolderError, match=f"{tmp_path}"):
        make_embedder(tmp_path)


def test_settings_change_with_the_files_of_the_folder(tmp_path: Path) -> None:
    folders = [save_encoder(tmp_path / name, seed) for name, seed in (("first", 0), ("copy", 0), ("trained", 1))]
    first, copy, trained = (make_embedder(folder).settings for folder in folders)
    (folders[0] / "vocabulary.json").write_text('{"words": ["a", "b", "c", "d", "e"]}')
    assert trained != first == copy != make_embedder(folders[0]).settings
