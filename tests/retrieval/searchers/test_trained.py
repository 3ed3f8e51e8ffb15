"""Folders that `agent train` writes, and the searcher `model:FOLDER`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.errors import ConfigError, RunFolderError, UsageError
from agent.retrieval.searchers.presets import EmbedderOptions
from agent.retrieval.searchers.registry import make_searcher
from agent.retrieval.searchers.trained import HEAD, RECORD, DataRecord, TrainingRecord, read_record
from tests.retrieval.searchers.test_dense import silent
from tests.retrieval.searchers.test_unif import TEXTS, compute_vectors, make_encoder, save_encoder
from tests.retrieval.searchers.tiny_models import save_roberta, save_sentence_transformer

CODES = ["def read(): pass", "def sort(items): return sorted(items)", "x = 1", "class Stack: pass"]
QUERIES = ["read a file", "sort a list"]


def save_record(folder: Path, recipe: Any = "siamese") -> Path:
    """Write a `training.json` to a folder."""
    record = TrainingRecord(recipe=recipe, data=DataRecord(name="pairs", sha256="0" * 64))
    (folder / RECORD).write_text(record.model_dump_json(by_alias=True))
    return folder


@pytest.mark.parametrize("content", ["", "{", "[]", '{"recipe": "other"}', '{"schema": 9, "recipe": "siamese"}'])
def test_a_damaged_record_raises_an_error_with_its_path(tmp_path: Path, content: str) -> None:
    (tmp_path / RECORD).write_text(content)
    with pytest.raises(RunFolderError, match=RECORD):
        read_record(tmp_path)


def test_a_record_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / RECORD).symlink_to(save_record(tmp_path / "other") / RECORD)
    with pytest.raises(RunFolderError, match=RECORD):
        read_record(tmp_path)


def save_siamese(folder: Path, recipe: Any = "siamese") -> tuple[Path, Any]:
    """Save an untrained model of a recipe with a head, and return its folder and its loss."""
    from safetensors.torch import save_file

    from agent.training.siamese import Siamese

    base = str(save_roberta(folder.with_name(f"{folder.name}-base")))
    settings = Siamese.defaults.model_copy(update={"max_tokens": 64})
    model = Siamese().make_model(base, None, settings, None)
    loss = Siamese().make_loss(model, settings)
    model.save_pretrained(str(folder))
    save_file(loss.head.state_dict(), folder / HEAD)
    return save_record(folder, recipe), loss


def rank(name: str, embeddings: Path, **options: Any) -> list[list[int]]:
    searcher = make_searcher(name, EmbedderOptions(embeddings=embeddings, **options))
    assert searcher.name == name
    searcher.index(CODES, silent)
    return [result.positions.tolist() for result in searcher.search(QUERIES, 4, silent)]


@pytest.mark.embed
@pytest.mark.parametrize("recipe", ["biencoder", "macp"])
def test_a_model_without_a_head_ranks_as_in_sentence_transformers(tmp_path: Path, recipe: str) -> None:
    prompts = {"query": "query: ", "document": "code: "}
    folder = save_record(save_sentence_transformer(tmp_path / "mine", prompts=prompts), recipe)
    assert rank(f"model:{folder}", tmp_path) == rank(f"hf:{folder}", tmp_path)
    assert make_searcher(f"model:{folder}").settings["prefixes"] == {"query": "query: ", "code": "code: "}


@pytest.mark.embed
@pytest.mark.parametrize("recipe", ["siamese", "coclr"])
def test_a_model_with_a_head_ranks_by_it(tmp_path: Path, recipe: str) -> None:
    import torch

    folder, loss = save_siamese(tmp_path / "mine", recipe)
    (folder / ".training" / "checkpoint-1").mkdir(parents=True)
    (folder / ".training" / "checkpoint-1" / "optimizer.pt").touch()
    with torch.no_grad():
        queries, codes = (loss.model.encode(texts, convert_to_tensor=True) for texts in (QUERIES, CODES))
        expected = loss.head(queries.cpu()[:, None], codes.cpu()).argsort(dim=1, descending=True).tolist()
    assert rank(f"model:{folder}", tmp_path, pooling="mean", trust_remote_code=True) == expected


@pytest.mark.embed
def test_unif_ranks_by_the_cosines_of_its_own_vectors(tmp_path: Path) -> None:
    folder = save_record(save_encoder(tmp_path / "mine"), "unif")
    searcher = make_searcher(f"model:{folder}", EmbedderOptions(embeddings=tmp_path))
    searcher.index(TEXTS, silent)
    known, unknown = searcher.search(["read path", "unheard"], len(TEXTS), silent)

    [query], codes = (
        compute_vectors(make_encoder(), *args) for args in ((["read path"], "query"), (TEXTS, "document"))
    )
    cosines = codes @ query / np.linalg.norm(query) / np.maximum(np.linalg.norm(codes, axis=1), 1e-9)
    assert dict(zip(known.positions, known.scores, strict=True)) == pytest.approx(dict(enumerate(cosines)), abs=1e-6)
    assert not unknown.scores.any()


@pytest.mark.embed
def test_settings_depend_on_the_content_of_the_folder(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder, _ = save_siamese(tmp_path / "mine")
    before = make_searcher(f"model:{folder}").settings
    assert make_searcher(f"model:{folder}/").settings == before
    save_file({name: 2 * weights for name, weights in load_file(folder / HEAD).items()}, folder / HEAD)
    assert make_searcher(f"model:{folder}").settings != before


@pytest.mark.embed
@pytest.mark.parametrize("recipe", ["siamese", "coclr", "unif"])
def test_hf_refuses_models_that_are_not_compared_by_their_inner_product(tmp_path: Path, recipe: str) -> None:
    folder = save_record(save_sentence_transformer(tmp_path / "mine"), recipe)
    with pytest.raises(UsageError, match=f"model:{folder}"):
        make_searcher(f"hf:{folder}")


@pytest.mark.embed
@pytest.mark.parametrize(
    ("file", "content"),
    [
        (HEAD, None),
        (HEAD, "link"),
        (HEAD, "{"),
        (HEAD, "\0" * 64),
        ("config.json", "link"),
        ("pytorch_model.bin", ""),
        (".hidden/weights.pt", ""),
        (".training/weights.pkl", ""),
        (".training/checkpoint-1/pytorch_model.bin.index.json", "{}"),
        ("optimizer.pt", ""),
        ("modules.json", "[]"),
        ("modules.json", '[{"idx": 0, "name": "0", "path": "", "type": "mine.Module"}]'),
    ],
)
def test_a_damaged_folder_raises_usage_error(tmp_path: Path, file: str, content: str | None) -> None:
    folder, _ = save_siamese(tmp_path / "mine")
    if content == "link":
        (folder / file).rename(tmp_path / file)
        (folder / file).symlink_to(tmp_path / file)
    elif content is None:
        (folder / file).unlink()
    else:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(content)
    with pytest.raises(UsageError, match=str(folder)):
        rank(f"model:{folder}", tmp_path, trust_remote_code=True)


def test_a_folder_that_was_not_trained_raises_usage_error(tmp_path: Path) -> None:
    for name in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError, match=RECORD):
            make_searcher(f"model:{name}")
    with pytest.raises(ConfigError):
        make_searcher("model:")
