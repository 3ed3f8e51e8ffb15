"""`hf:NAME-OR-FOLDER` with tiny models in local folders, by the code that loads real ones."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.errors import UsageError
from agent.retrieval.searchers.models import HuggingFaceEmbedder
from agent.retrieval.searchers.recipes import RECIPES, EmbedderOptions, find_recipe
from agent.retrieval.searchers.registry import make_searcher
from tests.retrieval.searchers import tiny_models
from tests.retrieval.searchers.tiny_models import roberta, sentence_transformer, with_own_code

pytestmark = pytest.mark.embed

TEXTS = ["def add(a, b): return a + b", "x", "class Stack:\n    pass\n" * 5]


def embed(folder: Path, texts: list[str], kind: Any = "code", **options: Any) -> np.ndarray[Any, Any]:
    return HuggingFaceEmbedder(str(folder), EmbedderOptions(**options)).embed(texts, kind).vectors


def hidden_states(folder: Path, ids: list[int]) -> np.ndarray[Any, Any]:
    """The states (tokens, dimensions) that a RoBERTa gives for one text alone."""
    import torch
    from transformers import RobertaModel

    with torch.no_grad():
        states = RobertaModel.from_pretrained(folder).eval()(torch.tensor([ids])).last_hidden_state[0]
    return np.asarray(states)


def unit(vector: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(vector / np.linalg.norm(vector))


def ids_of(text: str) -> list[int]:
    return list(tiny_models.tokenizer()(text)["input_ids"])


def test_codebert_gives_the_state_of_the_first_token(tmp_path: Path) -> None:
    folder = roberta(tmp_path / "codebert-base")
    for vector, text in zip(embed(folder, TEXTS), TEXTS, strict=True):
        assert vector == pytest.approx(unit(hidden_states(folder, ids_of(text))[0]), abs=1e-5)


@pytest.mark.parametrize(("kind", "prefix"), [("query", "query: "), ("code", "passage: ")])
def test_e5_gives_the_mean_over_the_tokens_of_prefix_and_text(tmp_path: Path, kind: str, prefix: str) -> None:
    folder = roberta(tmp_path / "multilingual-e5-small")
    for vector, text in zip(embed(folder, TEXTS, kind), TEXTS, strict=True):
        assert vector == pytest.approx(unit(hidden_states(folder, ids_of(prefix + text)).mean(0)), abs=1e-5)


def test_unixcoder_gives_the_mean_over_its_encoder_mode(tmp_path: Path) -> None:
    folder = roberta(tmp_path / "unixcoder-base")
    for vector, text in zip(embed(folder, TEXTS), TEXTS, strict=True):
        ids = [0, 5, 2, *ids_of(text)[1:-1], 2]
        assert vector == pytest.approx(unit(hidden_states(folder, ids).mean(0)), abs=1e-5)


def test_the_ids_of_unixcoder_are_mode_and_text_between_separators_within_512(tmp_path: Path) -> None:
    made = HuggingFaceEmbedder(str(roberta(tmp_path / "unixcoder-base")), EmbedderOptions())
    texts = ["a" * 600, "a b\n"]
    assert made.embed(texts, "code").counts == {"cut": 1}
    ids = made._loaded.preprocess(texts, prompt=made.settings["prefixes"]["code"])["input_ids"].tolist()
    a, *rest = ids_of(texts[1])[1:-1]
    assert ids == [[0, 5, 2, *[a] * 508, 2], [0, 5, 2, a, *rest, 2, *[1] * (508 - 1 - len(rest))]]


def test_a_tokenizer_of_another_family_is_refused(tmp_path: Path) -> None:
    folder = roberta(tmp_path / "unixcoder-base")
    (folder / "tokenizer.json").write_text((folder / "tokenizer.json").read_text().replace("encoder-only", "other"))
    with pytest.raises(UsageError, match="does not know <encoder-only>"):
        embed(folder, TEXTS)


@pytest.mark.parametrize("name", ["codebert-base", "unixcoder-base", "e5-base-v2"])
def test_padding_does_not_change_a_vector(tmp_path: Path, name: str) -> None:
    folder = roberta(tmp_path / name)
    together = embed(folder, TEXTS)
    alone = np.concatenate([embed(folder, [text]) for text in TEXTS])
    assert together == pytest.approx(alone, abs=1e-5)


def test_the_last_token_is_that_before_the_padding(tmp_path: Path) -> None:
    folder = roberta(tmp_path / "decoder")
    for vector, text in zip(embed(folder, TEXTS, pooling="last"), TEXTS, strict=True):
        assert vector == pytest.approx(unit(hidden_states(folder, ids_of(text))[-1]), abs=1e-5)


def test_texts_that_are_too_long_are_cut_and_counted(tmp_path: Path) -> None:
    folder = roberta(tmp_path / "codebert-base")
    embedded = HuggingFaceEmbedder(str(folder), EmbedderOptions()).embed(["a" * 510, "a" * 511, "a" * 5000], "code")
    assert embedded.counts == {"cut": 2}
    assert embedded.vectors[0] == pytest.approx(embedded.vectors[2], abs=1e-5)


def test_a_model_without_recipe_is_refused_and_the_ways_are_named(tmp_path: Path) -> None:
    folder = roberta(tmp_path / "my-model")
    with pytest.raises(UsageError, match=r"not known how.* CodeBERT, UniXcoder.*modules\.json.*--pooling mean"):
        HuggingFaceEmbedder(str(folder), EmbedderOptions())
    asked = embed(folder, TEXTS, "query", pooling="mean", query_prefix="query: ")
    assert asked.tolist() == embed(roberta(tmp_path / "e5-base"), TEXTS, "query").tolist()


@pytest.mark.parametrize(
    ("made", "name", "whose"),
    [
        (roberta, "codebert-base", "the recipe of CodeBERT"),
        (sentence_transformer, "mine", r"its modules\.json"),
        (sentence_transformer, "e5-base-v2", r"its modules\.json"),
    ],
)
def test_pooling_is_refused_where_a_recipe_says_it_but_prefixes_are_not(
    tmp_path: Path, made: Any, name: str, whose: str
) -> None:
    folder = str(made(tmp_path / name))
    with pytest.raises(UsageError, match=rf"{name}: {whose} says how .*leave --pooling out"):
        HuggingFaceEmbedder(folder, EmbedderOptions(pooling="mean"))
    given = HuggingFaceEmbedder(folder, EmbedderOptions(query_prefix="Q: ", code_prefix="C: "))
    assert given.settings["prefixes"] == {"query": "Q: ", "code": "C: "}


@pytest.mark.parametrize("changes", [{"max_tokens": 256}, {"mode": "<mask>"}, {"tasks": ("a", "b")}])
def test_a_changed_recipe_is_another_searcher(tmp_path: Path, monkeypatch: Any, changes: Any) -> None:
    folder = str(roberta(tmp_path / "codebert-base"))
    before = HuggingFaceEmbedder(folder, EmbedderOptions()).settings
    changed = replace(RECIPES[0], **changes)
    monkeypatch.setattr("agent.retrieval.searchers.recipes.RECIPES", (changed,))
    assert HuggingFaceEmbedder(folder, EmbedderOptions()).settings != before


@pytest.mark.parametrize(
    ("options", "prompts"),
    [({"prompts": {"query": "Q: ", "document": "D: "}}, ("Q: ", "D: ")), ({}, ("", ""))],
)
def test_a_modules_json_is_its_own_recipe_with_its_prompts(tmp_path: Path, options: Any, prompts: Any) -> None:
    from sentence_transformers import SentenceTransformer

    folder = sentence_transformer(tmp_path / "mine", **options)
    plain = SentenceTransformer(str(folder), device="cpu")
    for kind, prompt in zip(("query", "code"), prompts, strict=True):
        expected = plain.encode([prompt + text for text in TEXTS], prompt="")
        assert embed(folder, TEXTS, kind) == pytest.approx(expected, abs=1e-6)


def test_a_modules_json_without_prompts_gets_the_prefixes_of_its_family(tmp_path: Path) -> None:
    made = HuggingFaceEmbedder(str(sentence_transformer(tmp_path / "e5-base-v2")), EmbedderOptions())
    assert made.settings["pooling"] == "modules.json"
    assert made.settings["prefixes"] == {"query": "query: ", "code": "passage: "}


def test_a_model_that_compares_by_dot_product_keeps_the_lengths_of_its_vectors(tmp_path: Path) -> None:
    folder = sentence_transformer(tmp_path / "mine", similarity_fn_name="dot")
    assert HuggingFaceEmbedder(str(folder), EmbedderOptions()).settings["similarity"] == "dot"
    other = sentence_transformer(tmp_path / "other", similarity_fn_name="euclidean")
    with pytest.raises(UsageError, match="compares by 'euclidean'"):
        HuggingFaceEmbedder(str(other), EmbedderOptions())


def test_code_of_the_model_runs_only_where_it_is_trusted(tmp_path: Path) -> None:
    folder = with_own_code(tmp_path / "codet5p-110m-embedding")
    (folder / "configuration_projecting.py").open("a").write(f"\nopen({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(UsageError, match=r"Python code of its own.*--trust-remote-code"):
        HuggingFaceEmbedder(str(folder), EmbedderOptions())
    assert not (tmp_path / "ran").exists()

    vectors = embed(folder, TEXTS, trust_remote_code=True)
    assert (tmp_path / "ran").exists()
    from safetensors.numpy import load_file

    weights = load_file(folder / "model.safetensors")
    for vector, text in zip(vectors, TEXTS, strict=True):
        total = weights["embeddings.weight"][ids_of(text)].sum(0)
        assert vector == pytest.approx(unit(weights["proj.weight"] @ total + weights["proj.bias"]), abs=1e-5)


@pytest.mark.parametrize(
    ("file", "change"),
    [("config.json", {"auto_map": {"AutoModel": "modeling.Mine"}}), ("modules.json", [{"type": "os.path"}])],
)
def test_a_model_with_classes_of_its_own_is_not_loaded_as_another(tmp_path: Path, file: str, change: Any) -> None:
    folder = roberta(tmp_path / "codebert-base")
    config = json.loads((folder / "config.json").read_text())
    (folder / file).write_text(json.dumps({**config, **change} if isinstance(change, dict) else change))
    with pytest.raises(UsageError, match="Python code of its own"):
        HuggingFaceEmbedder(str(folder), EmbedderOptions())


def test_a_pickle_file_that_calls_a_function_is_refused(tmp_path: Path) -> None:
    import torch

    class Evil:
        def __reduce__(self) -> Any:
            return open, (str(tmp_path / "ran"), "w")

    folder = roberta(tmp_path / "codebert-base", safe=False)
    torch.save({"embeddings.word_embeddings.weight": Evil()}, folder / "pytorch_model.bin")
    with pytest.raises(UsageError, match="cannot be loaded"):
        embed(folder, TEXTS)
    assert not (tmp_path / "ran").exists()


def test_what_is_no_model_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    damaged = roberta(tmp_path / "codebert-base")
    (damaged / "config.json").write_text("{")
    for model, message in (
        ("./nowhere", "there is no such folder"),
        (str(tmp_path / "empty"), "holds no model"),
        (str(damaged), "cannot be had: JSONDecodeError"),
    ):
        with pytest.raises(UsageError, match=message):
            HuggingFaceEmbedder(model, EmbedderOptions())


def test_weights_that_are_missing_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from safetensors.torch import load_file, save_file

    folder = roberta(tmp_path / "codebert-base")
    weights = load_file(folder / "model.safetensors")
    del weights["embeddings.token_type_embeddings.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    loud = logging.getLogger("transformers")
    loud.addHandler(caplog.handler)
    try:
        embed(folder, TEXTS)
    finally:
        loud.removeHandler(caplog.handler)
    assert "embeddings.token_type_embeddings.weight" in caplog.text
    assert "MISSING" in caplog.text


@pytest.mark.parametrize("content", ["1", '"text"', '{"prompts": [1]}', '{"similarity_fn_name": ["cosine"]}', "\\x00"])
def test_files_of_another_form_are_an_error_in_words(tmp_path: Path, content: str) -> None:
    folder = roberta(tmp_path / "codebert-base")
    for name in ("config_sentence_transformers.json", "modules.json", "config.json"):
        (folder / name).write_text(content)
        with pytest.raises(UsageError, match=r"codebert-base: "):
            embed(folder, TEXTS)


def test_a_copy_of_a_model_has_its_version_and_a_changed_one_another(tmp_path: Path) -> None:
    folders = [roberta(tmp_path / place / "codebert-base") for place in ("a", "b", "c")]
    with (folders[2] / "tokenizer_config.json").open("a") as file:
        file.write("\n")
    a, b, c = (HuggingFaceEmbedder(str(folder), EmbedderOptions()).settings["version"] for folder in folders)
    assert a == b != c


KILLED = """
import os, signal, sys
from pathlib import Path
from agent.retrieval.searchers.registry import make_searcher
from agent.retrieval.searchers.recipes import EmbedderOptions

def killed(_what, done, _all):
    if done >= 128:
        os.kill(os.getpid(), signal.SIGKILL)

searcher = make_searcher("hf:" + sys.argv[1], EmbedderOptions(embeddings=Path(sys.argv[2])))
searcher.index(sys.stdin.read().split(";"), killed)
"""


@pytest.mark.long
def test_after_a_kill_the_rest_is_embedded_and_the_vectors_are_the_same_to_the_bit(tmp_path: Path) -> None:
    folder = roberta(tmp_path / "unixcoder-base")
    codes = [f"def function_{n}(): return {n}" + " + 1" * (n % 50) for n in range(300)]
    command = [sys.executable, "-c", KILLED, str(folder), str(tmp_path / "killed")]
    done = subprocess.run(command, input=";".join(codes), text=True, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr

    steps: dict[str, list[int]] = {}
    for name in ("killed", "whole"):
        resumed = make_searcher(f"hf:{folder}", EmbedderOptions(embeddings=tmp_path / name))
        resumed.index(codes, lambda _what, done, _all, name=name: steps.setdefault(name, []).append(done))
    assert steps == {"killed": [128, 192, 256, 300], "whole": [0, 64, 128, 192, 256, 300]}
    killed, whole = (next((tmp_path / name).glob("*.f32")).read_bytes() for name in ("killed", "whole"))
    assert killed == whole


def test_every_recipe_says_who_says_so_and_finds_the_models_it_is_for() -> None:
    for name, family in (
        ("microsoft/codebert-base", "CodeBERT"),
        ("microsoft/unixcoder-base-nine/", "UniXcoder"),
        ("Salesforce/codet5p-110m-embedding", "CodeT5+ embedding"),
        ("intfloat/multilingual-e5-large", "E5"),
        ("models/e5-base-v2", "E5"),
        ("jinaai/jina-embeddings-v2-base-code", "Jina v2"),
        ("jinaai/jina-embeddings-v3", "Jina v3"),
        ("jinaai/jina-code-embeddings-0.5b", "Jina code"),
    ):
        recipe = find_recipe(name)
        assert recipe is not None
        assert recipe.family == family
    assert find_recipe("Salesforce/codet5p-220m") is find_recipe("intfloat/e5-mistral-7b-instruct") is None
    assert all(recipe.source for recipe in RECIPES)
