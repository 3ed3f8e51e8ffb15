"""Searchers of `siamese` and `coclr` rank by the score of the head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import RunFolderError, UsageError
from agent.retrieval.searchers.base import CosineSearcher
from tests.retrieval.searchers.test_dense import CODES, HashEmbedder, silent

pytestmark = pytest.mark.embed

QUERIES = [f"query {n}" for n in range(70)]


def draw_head(dimensions: int = 8) -> list[Any]:
    random = np.random.default_rng(1)
    shapes = (dimensions, 4 * dimensions), (1, dimensions)
    return [random.normal(size=shape).astype(np.float32) for shape in shapes]


def save_head(path: Path, dimensions: int = 8, **changes: Any) -> Path:
    from safetensors.numpy import save_file

    weights = dict(zip(("w1.weight", "w2.weight"), draw_head(dimensions), strict=True))
    save_file({**weights, **changes}, path)
    return path


def compute_score(w1: Any, w2: Any, q: Any, c: Any) -> float:
    """Compute equation 2."""
    relation = np.tanh(w1.astype(float) @ np.concatenate([q, c, q - c, q * c]))
    return float(1 / (1 + np.exp(-(w2.astype(float) @ relation)[0])))


def make_searcher(folder: Path, *, dimensions: int = 8) -> Any:
    from agent.retrieval.searchers.siamese import SiameseSearcher, load_head

    return SiameseSearcher(HashEmbedder(), load_head(save_head(folder / "head.safetensors", dimensions)), folder)


def hash_text(text: str) -> Any:
    return HashEmbedder()._hash(text).astype(np.float32).astype(float)


def test_snippets_are_ranked_by_the_score_of_the_head(tmp_path: Path) -> None:
    searcher = make_searcher(tmp_path)
    searcher.index(CODES, silent)
    results = list(searcher.search(QUERIES, 10, silent))
    assert len(results) == len(QUERIES)
    for query, result in zip(QUERIES, results, strict=True):
        exact = np.array([compute_score(*draw_head(), hash_text(query), hash_text(code)) for code in CODES])
        assert result.positions.tolist() == np.argsort(-exact)[:10].tolist()
        assert 1 / (1 + np.exp(-result.scores)) == pytest.approx(exact[result.positions], abs=1e-6)


def test_the_searcher_has_no_cosine(tmp_path: Path) -> None:
    assert not isinstance(make_searcher(tmp_path), CosineSearcher)


def test_an_encoder_with_other_dimensions_raises_usage_error(tmp_path: Path) -> None:
    searcher = make_searcher(tmp_path, dimensions=4)
    searcher.index(CODES, silent)
    with pytest.raises(UsageError, match=r"8 .*4"):
        list(searcher.search(QUERIES, 10, silent))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(1, 30))
def test_identical_vectors_tie_at_any_position(values: list[int], dimensions: int) -> None:
    from agent.retrieval.searchers.siamese import Head

    random, head = np.random.default_rng(0), Head(dimensions).double()
    codes = random.normal(size=(5, dimensions)).astype(np.float32)[values]
    scores = head.score_all(random.normal(size=(2, dimensions)), codes).float().numpy()
    for value in set(values):
        assert len(set(scores[0][np.array(values) == value])) == 1


@given(st.integers(1, 12), st.integers(1, 6), st.integers(1, 200), st.integers(0, 9))
def test_scores_of_pairs_and_of_all_pairs_follow_equation_2(dimensions: int, count: int, block: int, seed: int) -> None:
    import torch

    from agent.retrieval.searchers.siamese import Head

    torch.manual_seed(seed)
    head = Head(dimensions).double()
    queries, codes = torch.randn(2, count, dimensions, dtype=torch.float64)
    weights = head.w1.weight.detach().numpy(), head.w2.weight.detach().numpy()
    exact = [[compute_score(*weights, query, code) for code in codes.numpy()] for query in queries.numpy()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agent.retrieval.searchers.siamese._BLOCK_SIZE", block)
        assert head.score_all(queries, codes).sigmoid().numpy() == pytest.approx(np.array(exact), abs=1e-9)
    assert head(queries, codes).sigmoid().detach().numpy() == pytest.approx(np.diag(exact), abs=1e-9)


@pytest.mark.parametrize(
    "change",
    [
        {"w1.weight": np.zeros((8, 30), np.float32)},
        {"w1.weight": np.zeros((8, 32), np.float64)},
        {"w1.weight": np.zeros((8, 32, 1), np.float32)},
        {"w1.weight": np.zeros((0, 32), np.float32), "w2.weight": np.zeros((1, 0), np.float32)},
        {"w1.weight": np.full((8, 32), np.nan, np.float32)},
        {"w2.weight": np.zeros((2, 8), np.float32)},
        {"w2.weight": np.zeros((1, 9), np.float32)},
        {"w3.weight": np.zeros((1, 8), np.float32)},
    ],
)
def test_weights_that_are_no_head_raise_an_error_with_the_path(tmp_path: Path, change: Any) -> None:
    from agent.retrieval.searchers.siamese import load_head

    path = save_head(tmp_path / "head.safetensors", **change)
    with pytest.raises(RunFolderError, match=str(path)):
        load_head(path)
