"""Defines presets. A preset describes how the models in a family turn a text into one vector.

A model needs a preset, a `modules.json` or `--pooling`, because wrong pooling or prefixes silently yield wrong vectors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from agent.errors import UsageError
from agent.text import one_line

Kind = Literal["query", "code"]
# How a text vector is formed: from the first token, as the mean over all tokens, from the last token, or by the model.
Pooling = Literal["cls", "mean", "last", "own"]
AS_ASKED = "as asked for"
"""The family in the settings of models whose pooling the user passed."""
Precision = Literal["auto", "float32", "bfloat16"]
"""The type of numbers in a model's layers. `auto` is bfloat16 on devices that compute with it faster than with float32.
The weights and the vectors are float32."""
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")  # prompt names in sentence-transformers


@dataclass(frozen=True)
class EmbedderOptions:
    """User options for searchers with an embedding model.

    `embeddings` is the folder where vectors are stored. `base_url` applies to endpoints. `trust_remote_code` allows
    the model's custom code to run. `pooling` applies to models without a preset. The prefixes override the model's own
    prompts and the prefixes of its preset. `precision` and `max_tokens` apply to models that run on this machine.
    `max_tokens` lowers the model's own limit.
    """

    embeddings: Path = Path("embeddings")
    base_url: str | None = None
    trust_remote_code: bool = False
    pooling: Pooling | None = None
    query_prefix: str | None = None
    code_prefix: str | None = None
    precision: Precision = "float32"
    max_tokens: int | None = None


def restore_options(options: EmbedderOptions, settings: Mapping[str, Any]) -> EmbedderOptions:
    """Return options with those that affect scores replaced by the recorded settings of a searcher.

    A server or trust in custom code is never taken from settings, which may come from a stranger.

    Raises:
        UsageError: the settings are damaged.
    """
    prefixes, pooling = settings.get("prefixes", {}), settings.get("pooling")
    recorded = {
        "pooling": pooling if settings.get("family") == AS_ASKED else None,
        "precision": settings.get("precision", "float32"),
        "max_tokens": settings.get("token_limit"),
    }
    try:
        recorded |= {f"{kind}_prefix": prefixes.get(kind) for kind in ("query", "code")}
        return TypeAdapter(EmbedderOptions).validate_python({**vars(options), **recorded})
    except (AttributeError, ValidationError):
        raise UsageError(f"the recorded settings {one_line(str(settings))} are damaged") from None


@dataclass(frozen=True)
class ModelPreset:
    """Describes how to use a family of models. `name_pattern` matches lowercase model names without the owner.

    `max_tokens` includes special tokens. `mode` is a token that occurs in the prefixes and must be registered with the
    tokenizer. `tasks` contains the adapter names for queries and snippets.
    """

    family: str
    name_pattern: str
    pooling: Pooling
    source: str
    query_prefix: str = ""
    code_prefix: str = ""
    max_tokens: int | None = 512
    custom_code: bool = False
    mode: str | None = None
    tasks: tuple[str, str] = ("query", "document")


PRESETS: Sequence[ModelPreset] = (
    ModelPreset(
        "CodeBERT", r"codebert-base(-.*)?", "cls", "Feng et al. 2020, arXiv:2002.08155, 4.1; CoSQA's paper, 5.1"
    ),
    ModelPreset(
        "UniXcoder",
        r"unixcoder-base(-.*)?",
        "mean",
        "github.com/microsoft/CodeBERT, UniXcoder/unixcoder.py and UniXcoder/README.md",
        query_prefix="<encoder-only></s>",
        code_prefix="<encoder-only></s>",
        mode="<encoder-only>",
    ),
    ModelPreset(
        "CodeT5+ embedding", r"codet5p-110m-embedding(-.*)?", "own", "github.com/salesforce/CodeT5", custom_code=True
    ),
    ModelPreset(
        "E5",
        r"(multilingual-)?e5-(small|base|large)(-v2|-unsupervised)?",
        "mean",
        "the model cards of intfloat/e5-base-v2 and intfloat/multilingual-e5-base; github.com/microsoft/unilm, e5",
        query_prefix="query: ",
        code_prefix="passage: ",
    ),
    ModelPreset(
        "Jina v2", r"jina-embeddings-v2-(base|small)-.*", "mean", "their model cards", max_tokens=8192, custom_code=True
    ),
    ModelPreset(
        "Jina v3",
        r"jina-embeddings-v3",
        "mean",
        "the model card of jinaai/jina-embeddings-v3 and its config_sentence_transformers.json",
        query_prefix="Represent the query for retrieving evidence documents: ",
        code_prefix="Represent the document for retrieval: ",
        max_tokens=8192,
        custom_code=True,
        tasks=("retrieval.query", "retrieval.passage"),
    ),
    ModelPreset(
        "Jina code",
        r"jina-code-embeddings-(0\.5b|1\.5b)",
        "last",
        "the model card of jinaai/jina-code-embeddings-0.5b (nl2code) and arXiv:2508.21290",
        query_prefix="Find the most relevant code snippet given the following query:\n",
        code_prefix="Candidate code snippet:\n",
        max_tokens=8192,
    ),
)


def find_preset(model: str) -> ModelPreset | None:
    """Find the preset for a model on the Hub or behind an endpoint by the last part of its name."""
    name = model.rstrip("/").rpartition("/")[2].lower()
    return next((preset for preset in PRESETS if re.fullmatch(preset.name_pattern, name)), None)


def find_hub_preset(model: str) -> ModelPreset | None:
    """Find the preset for a model on the Hub. A local folder has none, because its name can be anything."""
    return None if Path(model).is_dir() else find_preset(model)


def choose_prefixes(
    preset: ModelPreset | None, options: EmbedderOptions, prompts: Mapping[str, str] | None = None
) -> dict[Kind, str]:
    """Return the prefixes for queries and snippets.

    Prefixes in the options take precedence over the model's prompts, which take precedence over the prefixes in the
    preset.
    """
    prompts = prompts or {}
    query = prompts.get("query") or (preset.query_prefix if preset else "")
    code = next(filter(None, map(prompts.get, _DOCUMENT_PROMPTS)), None) or (preset.code_prefix if preset else "")
    return {
        "query": query if options.query_prefix is None else options.query_prefix,
        "code": code if options.code_prefix is None else options.code_prefix,
    }
