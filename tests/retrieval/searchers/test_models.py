"""`hf:NAME-OR-FOLDER` with tiny local models, loaded by the same code as real ones."""

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
from agent.retrieval.searchers import models
from agent.retrieval.searchers.models import HuggingFaceEmbedder
from agent.retrieval.searchers.presets import PRESETS, EmbedderOptions, find_preset
from agent.retrieval.searchers.registry import make_searcher
from tests.retrieval.searchers import tiny_models
from tests.retrieval.searchers.tiny_models import publish, save_custom_model, save_roberta, save_sentence_transformer
from tests.training.tiny import save_bert

pytestmark = pytest.mark.embed

NO_PREFIXES = {"query_prefix": "", "code_prefix": ""}
TEXTS = ["def add(a, b): return a + b", "x", "class Stack:\n    pass\n" * 5]


def embed(model: Path | str, texts: list[str], kind: Any = "code", **options: Any) -> np.ndarray[Any, Any]:
    return HuggingFaceEmbedder(str(model), EmbedderOptions(**options)).embed(texts, kind).vectors


def get_hidden_states(folder: Path, ids: list[int]) -> np.ndarray[Any, Any]:
    """Return the hidden states (tokens, dimensions) of a RoBERTa model for a single text."""
    import torch
    from transformers import RobertaModel

    with torch.no_grad():
        states = RobertaModel.from_pretrained(folder).eval()(torch.tensor([ids])).last_hidden_state[0]
    return np.asarray(states)


def normalise(vector: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(vector / np.linalg.norm(vector))


def get_ids(text: str) -> list[int]:
    return list(tiny_models.make_tokenizer()(text)["input_ids"])


def test_codebert_uses_the_first_token(hub: Path) -> None:
    folder = save_roberta(hub / "codebert-base")
    for vector, text in zip(embed(publish(folder), TEXTS), TEXTS, strict=True):
        assert vector == pytest.approx(normalise(get_hidden_states(folder, get_ids(text))[0]), abs=1e-5)


@pytest.mark.parametrize(("kind", "prefix"), [("query", "query: "), ("code", "passage: ")])
def test_e5_uses_the_mean_over_prefix_and_text(hub: Path, kind: str, prefix: str) -> None:
    folder = save_roberta(hub / "multilingual-e5-small")
    for vector, text in zip(embed(publish(folder), TEXTS, kind), TEXTS, strict=True):
        assert vector == pytest.approx(normalise(get_hidden_states(folder, get_ids(prefix + text)).mean(0)), abs=1e-5)


def test_unixcoder_uses_the_mean_in_encoder_mode(hub: Path) -> None:
    folder = save_roberta(hub / "unixcoder-base")
    for vector, text in zip(embed(publish(folder), TEXTS), TEXTS, strict=True):
        ids = [0, 5, 2, *get_ids(text)[1:-1], 2]
        assert vector == pytest.approx(normalise(get_hidden_states(folder, ids).mean(0)), abs=1e-5)


def test_unixcoder_inputs_have_mode_and_separators_and_at_most_512_tokens(hub: Path) -> None:
    embedder = HuggingFaceEmbedder(publish(save_roberta(hub / "unixcoder-base")), EmbedderOptions())
    texts = ["a" * 600, "a b\n"]
    assert embedder.embed(texts, "code").counts == {"cut": 1}
    ids = embedder._loaded.preprocess(texts, prompt=embedder.settings["prefixes"]["code"])["input_ids"].tolist()
    a, *rest = get_ids(texts[1])[1:-1]
    assert ids == [[0, 5, 2, *[a] * 508, 2], [0, 5, 2, a, *rest, 2, *[1] * (508 - 1 - len(rest))]]


def test_a_tokenizer_of_another_family_raises_usage_error(hub: Path) -> None:
    folder = save_roberta(hub / "unixcoder-base")
    (folder / "tokenizer.json").write_text((folder / "tokenizer.json").read_text().replace("encoder-only", "other"))
    with pytest.raises(UsageError, match=r"UniXcoder.*<encoder-only>"):
        embed(publish(folder), TEXTS)


@pytest.mark.parametrize("name", ["codebert-base", "unixcoder-base", "e5-base-v2"])
def test_padding_does_not_change_vectors(hub: Path, name: str) -> None:
    model = publish(save_roberta(hub / name))
    together = embed(model, TEXTS)
    alone = np.concatenate([embed(model, [text]) for text in TEXTS])
    assert together == pytest.approx(alone, abs=1e-5)


def test_last_token_pooling_ignores_padding(tmp_path: Path) -> None:
    folder = save_roberta(tmp_path / "decoder")
    for vector, text in zip(embed(folder, TEXTS, pooling="last", **NO_PREFIXES), TEXTS, strict=True):
        assert vector == pytest.approx(normalise(get_hidden_states(folder, get_ids(text))[-1]), abs=1e-5)


def test_texts_that_are_too_long_are_truncated_and_counted(hub: Path) -> None:
    model = publish(save_roberta(hub / "codebert-base"))
    embedded = HuggingFaceEmbedder(model, EmbedderOptions()).embed(["a" * 510, "a" * 511, "a" * 5000], "code")
    assert embedded.counts == {"cut": 2}
    assert embedded.vectors[0] == pytest.approx(embedded.vectors[2], abs=1e-5)


def test_texts_are_truncated_to_the_positions_of_a_short_model(tmp_path: Path) -> None:
    options = EmbedderOptions(pooling="mean", **NO_PREFIXES)
    embedder = HuggingFaceEmbedder(str(save_bert(tmp_path / "short")), options)  # 64 positions
    assert embedder.embed(["a" * 10, "a b " * 100], "code").counts == {"cut": 1}


def test_bfloat16_changes_vectors_slightly_and_is_recorded(hub: Path) -> None:
    model = publish(save_roberta(hub / "codebert-base"))
    plain, low = (HuggingFaceEmbedder(model, EmbedderOptions(precision=p)) for p in ("float32", "bfloat16"))
    vectors = [embedder.embed(TEXTS, "code").vectors for embedder in (plain, low)]
    assert [array.dtype for array in vectors] == ["float32", "float32"]
    assert (vectors[0] * vectors[1]).sum(1) == pytest.approx(1, abs=0.01)
    assert vectors[0].tolist() != vectors[1].tolist()
    assert low.settings == {**plain.settings, "precision": "bfloat16"}
    assert plain.settings.keys().isdisjoint({"precision", "token_limit"})  # as before these options existed
    assert {str(weight.dtype) for weight in low._loaded.parameters()} == {"torch.float32"}


@pytest.mark.parametrize(("speedup", "expected"), [(0.0, "float32"), (1.1, "float32"), (2.0, "bfloat16")])
def test_auto_is_bfloat16_only_where_it_is_faster(
    monkeypatch: pytest.MonkeyPatch, speedup: float, expected: str
) -> None:
    monkeypatch.setattr(models, "measure_bfloat16_speedup", lambda: speedup)
    assert models.choose_precision("auto", "cpu") == expected
    assert models.choose_precision("auto", "mps") == "float32"
    assert models.choose_precision("bfloat16", "cpu") == "bfloat16"


@pytest.mark.parametrize(("given", "limit", "cut"), [(8, 8, 2), (512, 64, 1)])
def test_the_number_of_tokens_can_be_lowered_and_is_recorded(tmp_path: Path, given: int, limit: int, cut: int) -> None:
    folder = save_sentence_transformer(tmp_path / "mine")  # 64 tokens
    plain, lowered = (HuggingFaceEmbedder(str(folder), EmbedderOptions(max_tokens=n)) for n in (None, given))
    assert lowered.settings == {**plain.settings, "token_limit": given}
    embedded = lowered.embed(["a" * 6, "a" * 7, "a" * 63], "code")
    assert (embedded.counts, lowered._loaded.max_seq_length) == ({"cut": cut}, limit)


def test_a_model_without_preset_raises_an_error_with_the_options(hub: Path) -> None:
    model = publish(save_roberta(hub / "my-model"))
    with pytest.raises(UsageError, match=r"modules\.json.*CodeBERT, UniXcoder.*--pooling mean"):
        HuggingFaceEmbedder(model, EmbedderOptions())
    vectors = embed(model, TEXTS, "query", pooling="mean", query_prefix="query: ")
    assert vectors.tolist() == embed(publish(save_roberta(hub / "e5-base")), TEXTS, "query").tolist()


@pytest.mark.parametrize("options", [{}, NO_PREFIXES, {"pooling": "mean"}, {"pooling": "mean", "query_prefix": ""}])
def test_the_name_of_a_folder_determines_neither_pooling_nor_prefixes(tmp_path: Path, options: Any) -> None:
    folder = save_roberta(tmp_path / "unixcoder-base-mine")
    with pytest.raises(UsageError, match=r"modules\.json.*--pooling.*--query-prefix.*--code-prefix"):
        HuggingFaceEmbedder(str(folder), EmbedderOptions(**options))
    modular = save_sentence_transformer(tmp_path / "modular" / "unixcoder-base-mine")
    assert HuggingFaceEmbedder(str(modular), EmbedderOptions()).settings["prefixes"] == {"query": "", "code": ""}


def test_a_copy_of_unixcoder_works_with_its_pooling_and_prefixes(hub: Path) -> None:
    folder, prefix = save_roberta(hub / "unixcoder-base"), "<encoder-only></s>"
    vectors = embed(folder, TEXTS, pooling="mean", query_prefix=prefix, code_prefix=prefix)
    assert vectors.tolist() == embed(publish(folder), TEXTS).tolist()


@pytest.mark.parametrize(
    ("save", "name", "source"),
    [
        (save_roberta, "codebert-base", "CodeBERT"),
        (save_sentence_transformer, "mine", r"modules\.json"),
        (save_sentence_transformer, "e5-base-v2", r"modules\.json"),
    ],
)
def test_pooling_conflicts_with_a_preset_but_prefixes_do_not(hub: Path, save: Any, name: str, source: str) -> None:
    model = publish(save(hub / name))
    with pytest.raises(UsageError, match=rf"{name}: .*{source}.*--pooling"):
        HuggingFaceEmbedder(model, EmbedderOptions(pooling="mean"))
    embedder = HuggingFaceEmbedder(model, EmbedderOptions(query_prefix="Q: ", code_prefix="C: "))
    assert embedder.settings["prefixes"] == {"query": "Q: ", "code": "C: "}


@pytest.mark.parametrize("changes", [{"max_tokens": 256}, {"mode": "<mask>"}, {"tasks": ("a", "b")}])
def test_a_changed_preset_changes_the_settings(hub: Path, monkeypatch: Any, changes: Any) -> None:
    model = publish(save_roberta(hub / "codebert-base"))
    before = HuggingFaceEmbedder(model, EmbedderOptions()).settings
    changed = replace(PRESETS[0], **changes)
    monkeypatch.setattr("agent.retrieval.searchers.presets.PRESETS", (changed,))
    assert HuggingFaceEmbedder(model, EmbedderOptions()).settings != before


@pytest.mark.parametrize(
    ("options", "prompts"),
    [({"prompts": {"query": "Q: ", "document": "D: "}}, ("Q: ", "D: ")), ({}, ("", ""))],
)
def test_a_modules_json_determines_pooling_and_prompts(tmp_path: Path, options: Any, prompts: Any) -> None:
    from sentence_transformers import SentenceTransformer

    folder = save_sentence_transformer(tmp_path / "mine", **options)
    plain = SentenceTransformer(str(folder), device="cpu")
    for kind, prompt in zip(("query", "code"), prompts, strict=True):
        expected = plain.encode([prompt + text for text in TEXTS], prompt="")
        assert embed(folder, TEXTS, kind) == pytest.approx(expected, abs=1e-6)


def test_a_modules_json_without_prompts_uses_the_prefixes_of_its_family(hub: Path) -> None:
    embedder = HuggingFaceEmbedder(publish(save_sentence_transformer(hub / "e5-base-v2")), EmbedderOptions())
    assert embedder.settings["pooling"] == "modules.json"
    assert embedder.settings["prefixes"] == {"query": "query: ", "code": "passage: "}


def test_a_model_with_dot_product_similarity_is_not_normalised(tmp_path: Path) -> None:
    folder = save_sentence_transformer(tmp_path / "mine", similarity_fn_name="dot")
    assert HuggingFaceEmbedder(str(folder), EmbedderOptions()).settings["similarity"] == "dot"
    other = save_sentence_transformer(tmp_path / "other", similarity_fn_name="euclidean")
    with pytest.raises(UsageError, match="euclidean"):
        HuggingFaceEmbedder(str(other), EmbedderOptions())


def test_custom_code_runs_only_if_trusted(hub: Path, tmp_path: Path) -> None:
    folder = save_custom_model(hub / "codet5p-110m-embedding")
    (folder / "configuration_projecting.py").open("a").write(f"\nopen({str(tmp_path / 'ran')!r}, 'w')\n")
    model = publish(folder)
    with pytest.raises(UsageError, match="--trust-remote-code"):
        HuggingFaceEmbedder(model, EmbedderOptions())
    assert not (tmp_path / "ran").exists()

    vectors = embed(model, TEXTS, trust_remote_code=True)
    assert (tmp_path / "ran").exists()
    from safetensors.numpy import load_file

    weights = load_file(folder / "model.safetensors")
    for vector, text in zip(vectors, TEXTS, strict=True):
        total = weights["embeddings.weight"][get_ids(text)].sum(0)
        assert vector == pytest.approx(normalise(weights["proj.weight"] @ total + weights["proj.bias"]), abs=1e-5)


@pytest.mark.parametrize(
    ("file", "change"),
    [("config.json", {"auto_map": {"AutoModel": "modeling.Mine"}}), ("modules.json", [{"type": "os.path"}])],
)
def test_custom_classes_are_never_replaced_by_standard_ones(tmp_path: Path, file: str, change: Any) -> None:
    folder = save_roberta(tmp_path / "codebert-base")
    config = json.loads((folder / "config.json").read_text())
    (folder / file).write_text(json.dumps({**config, **change} if isinstance(change, dict) else change))
    with pytest.raises(UsageError, match="--trust-remote-code"):
        HuggingFaceEmbedder(str(folder), EmbedderOptions())


def test_a_pickle_file_that_calls_a_function_raises_usage_error(hub: Path, tmp_path: Path) -> None:
    import torch

    class Evil:
        def __reduce__(self) -> Any:
            return open, (str(tmp_path / "ran"), "w")

    folder = save_roberta(hub / "codebert-base", safe=False)
    torch.save({"embeddings.word_embeddings.weight": Evil()}, folder / "pytorch_model.bin")
    with pytest.raises(UsageError, match=r"codebert-base: .*[Uu]npickl"):
        embed(publish(folder), TEXTS)
    assert not (tmp_path / "ran").exists()


def test_a_missing_or_damaged_model_raises_usage_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    damaged = save_roberta(tmp_path / "codebert-base")
    (damaged / "config.json").write_text("{")
    for model, message in (
        ("./nowhere", "folder"),
        (str(tmp_path / "empty"), r"modules\.json"),
        (str(damaged), "JSONDecodeError"),
    ):
        with pytest.raises(UsageError, match=message):
            HuggingFaceEmbedder(model, EmbedderOptions())


def test_missing_weights_are_logged(hub: Path, caplog: pytest.LogCaptureFixture) -> None:
    from safetensors.torch import load_file, save_file

    folder = save_roberta(hub / "codebert-base")
    weights = load_file(folder / "model.safetensors")
    del weights["embeddings.token_type_embeddings.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    logger = logging.getLogger("transformers")
    logger.setLevel(logging.WARNING)  # a training in the same process logs errors only
    logger.addHandler(caplog.handler)
    try:
        embed(publish(folder), TEXTS)
    finally:
        logger.removeHandler(caplog.handler)
    assert "embeddings.token_type_embeddings.weight" in caplog.text
    assert "MISSING" in caplog.text


@pytest.mark.parametrize("content", ["1", '"text"', '{"prompts": [1]}', '{"similarity_fn_name": ["cosine"]}', "\\x00"])
def test_malformed_files_raise_usage_error(hub: Path, content: str) -> None:
    folder = save_roberta(hub / "codebert-base")
    for name in ("config_sentence_transformers.json", "modules.json", "config.json"):
        (folder / name).write_text(content)
        with pytest.raises(UsageError, match=r"codebert-base: "):
            embed(publish(folder), TEXTS)


def test_the_version_of_a_local_model_is_a_hash_of_its_content(tmp_path: Path) -> None:
    folders = [save_roberta(tmp_path / place / "codebert-base") for place in ("a", "b", "c")]
    with (folders[2] / "tokenizer_config.json").open("a") as file:
        file.write("\n")
    options = EmbedderOptions(pooling="cls", **NO_PREFIXES)
    a, b, c = (HuggingFaceEmbedder(str(folder), options).settings["version"] for folder in folders)
    assert a == b != c


SCRIPT = """
import os, signal, sys
from pathlib import Path
from agent.retrieval.searchers.registry import make_searcher
from agent.retrieval.searchers.presets import EmbedderOptions

def kill_process(_step, done, _total):
    if done >= 128:
        os.kill(os.getpid(), signal.SIGKILL)

searcher = make_searcher("hf:" + sys.argv[1], EmbedderOptions(embeddings=Path(sys.argv[2])))
searcher.index(sys.stdin.read().split(";"), kill_process)
"""


@pytest.mark.long
def test_indexing_resumes_after_a_kill_with_identical_vectors(tmp_path: Path) -> None:
    folder = save_sentence_transformer(tmp_path / "mine")
    codes = [f"def function_{n}(): return {n}" + " + 1" * (n % 50) for n in range(300)]
    command = [sys.executable, "-c", SCRIPT, str(folder), str(tmp_path / "killed")]
    process = subprocess.run(command, input=";".join(codes), text=True, capture_output=True)
    assert process.returncode == -signal.SIGKILL, process.stderr

    steps: dict[str, list[int]] = {}
    for name in ("killed", "uninterrupted"):
        searcher = make_searcher(f"hf:{folder}", EmbedderOptions(embeddings=tmp_path / name))
        searcher.index(codes, lambda _step, done, _total, name=name: steps.setdefault(name, []).append(done))
    assert steps == {"killed": [128, 192, 256, 300], "uninterrupted": [0, 64, 128, 192, 256, 300]}
    first, second = (next((tmp_path / name).glob("*.f32")).read_bytes() for name in steps)
    assert first == second


def test_presets_have_a_source_and_match_their_models() -> None:
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
        preset = find_preset(name)
        assert preset is not None
        assert preset.family == family
    assert find_preset("Salesforce/codet5p-220m") is find_preset("intfloat/e5-mistral-7b-instruct") is None
    assert all(preset.source for preset in PRESETS)
