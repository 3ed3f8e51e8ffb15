"""The recipe `unif`: it starts from the vectors of NCS, its loss is InfoNCE, and training improves the ranking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.retrieval.searchers.ncs import Ncs
from agent.training.data import TrainingData, TrainingPair
from tests.training.test_trainer import Session

pytestmark = pytest.mark.embed

NAMES = ["apple", "banana", "cherry", "damson", "elder", "fig", "grape", "hazel"]
QUERIES = ["anvil", "bellows", "chisel", "drill", "easel", "file", "gouge", "hammer"]
# code n answers query n, whose word occurs in other codes only
CODES = [f"def {name}({QUERIES[n - 3]}): {name} {QUERIES[n - 5]}" for n, name in enumerate(NAMES)]
PAIRS = [TrainingPair(n, n, 1) for n in range(8)]
DATA = TrainingData("toy", QUERIES, CODES, PAIRS, ["python"] * 8, range(8), range(8))


def make_recipe() -> Any:
    import torch

    from agent.training.unif import Unif

    torch.set_num_threads(1)
    return Unif()


def make_model(progress: Any = lambda *_: None) -> Any:
    return make_recipe().make_model(None, DATA, make_recipe().defaults, progress)


def get_weights(model: Any) -> list[np.ndarray[Any, Any]]:
    return [weights.detach().numpy() for weights in (model[0].queries, model[0].codes, model[0].attention)]


def compute_rr(model: Any) -> float:
    """Compute the mean reciprocal rank of the relevant codes."""
    scores = make_recipe().make_scorer(None)(model.encode_query(QUERIES), model.encode_document(CODES)).numpy()
    return float(np.mean(1 / (scores >= scores.diagonal()[:, None]).sum(axis=1)))


def test_both_tables_start_from_the_vectors_of_ncs() -> None:
    ncs, model = Ncs("ncs", "about"), make_model()
    ncs.index(CODES, lambda *_: None)
    queries, codes, attention = get_weights(model)

    assert list(model[0].words) == ncs.words.index_to_key
    assert all(np.array_equal(table, ncs.words.vectors) for table in (queries, codes))
    assert not attention.any()


def test_training_of_word_vectors_reports_progress() -> None:
    steps: list[tuple[str, int, int | None]] = []
    make_model(lambda *step: steps.append(step))
    assert [done for name, done, total in steps if "vectors" in name and total == 15] == list(range(1, 16))


def compute_loss(weights: list[Any], queried: list[list[int]], searched: list[list[int]]) -> float:
    """Compute InfoNCE with temperature 0.2 from its definition. Code i is relevant for query i."""
    queries, codes, attention = weights
    attended = [np.exp(codes[words] @ attention) @ codes[words] for words in searched]  # the softmax keeps directions
    vectors = [*(queries[words].sum(axis=0) for words in queried), *attended]
    unit = [vector / max(np.linalg.norm(vector), 1e-12) for vector in vectors]
    scores = np.exp(np.array(unit[: len(queried)]) @ np.array(unit[len(queried) :]).T / 0.2)
    return float(-np.log(scores.diagonal() / scores.sum(axis=1)).mean())


def test_the_loss_and_its_gradient_equal_an_independent_computation() -> None:
    import torch
    from sentence_transformers import SentenceTransformer

    from agent.retrieval.searchers.unif import UnifEncoder

    random = np.random.default_rng(0)
    weights = [random.normal(size=size) for size in ((8, 2), (8, 2), 2)]
    # the words of queries, relevant codes and hard negatives, some of them without known words
    columns = [[random.integers(8, size=n).tolist() for n in sizes] for sizes in ([1, 3, 0], [4, 1, 2], [0, 5, 2])]
    encoder = UnifEncoder(NAMES, *(torch.from_numpy(array.copy()) for array in weights))
    texts = [[" ".join(NAMES[word] for word in words) or "unheard" for words in column] for column in columns]
    features = [encoder.preprocess(texts[n], task="document" if n else "query") for n in range(3)]
    model = SentenceTransformer(modules=[encoder], device="cpu")
    settings = make_recipe().defaults.model_copy(update={"temperature": 0.2})
    loss = make_recipe().make_loss(model, settings)(features, None)
    loss.backward()

    words = columns[0], columns[1] + columns[2]
    assert loss.item() == pytest.approx(compute_loss(weights, *words), abs=1e-6)
    for number, parameter in enumerate((encoder.queries, encoder.codes, encoder.attention)):
        step = 1e-6 * random.normal(size=weights[number].shape)
        moved = ([*weights[:number], weights[number] + change, *weights[number + 1 :]] for change in (step, -step))
        above, below = (compute_loss(arrays, *words) for arrays in moved)
        assert (parameter.grad.numpy() * step).sum() == pytest.approx((above - below) / 2, abs=1e-12)


def test_training_raises_the_reciprocal_rank(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    from agent.retrieval.searchers.unif import UnifEncoder

    Session().train(tmp_path, None, make_recipe(), data=DATA, epochs=15, learning_rate=5e-2, hard_negatives=1)
    trained = SentenceTransformer(modules=[UnifEncoder.load(str(tmp_path))], device="cpu")
    assert compute_rr(make_model()) < 0.5
    assert compute_rr(trained) == 1
    assert get_weights(trained)[2].any()
