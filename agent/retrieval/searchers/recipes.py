"""How the models of each family make one vector of a text: which vectors are right is a fact of the model.

A model whose recipe is unknown is refused, since another recipe gives wrong vectors without any error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["query", "code"]
# The vector is that of the first token, the mean over all, that of the last, or what the model itself returns.
Pooling = Literal["cls", "mean", "last", "own"]
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")  # as sentence-transformers calls them


@dataclass(frozen=True)
class EmbedderOptions:
    """What users may say of a searcher by a model.

    `embeddings` is the folder for its vectors. `base_url` is for endpoints; `trust_remote_code` lets the model's own
    code run here. `pooling` and the prefixes are for models without a recipe, the prefixes also for endpoints.
    """

    embeddings: Path = Path("embeddings")
    base_url: str | None = None
    trust_remote_code: bool = False
    pooling: Pooling | None = None
    query_prefix: str | None = None
    code_prefix: str | None = None


@dataclass(frozen=True)
class Recipe:
    """One family: the names of its models (a pattern, in lower case, without owner), how to use them, and who says so.

    All are compared by cosine. `max_tokens` counts special tokens. `mode` is a token of the prefixes that the
    tokenizer must be told of. `tasks` are what models with adapters call queries and codes.
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


RECIPES: Sequence[Recipe] = (
    Recipe("CodeBERT", r"codebert-base(-.*)?", "cls", "Feng et al. 2020, arXiv:2002.08155, 4.1; CoSQA's paper, 5.1"),
    Recipe(
        "UniXcoder",
        r"unixcoder-base(-.*)?",
        "mean",
        "github.com/microsoft/CodeBERT, UniXcoder/unixcoder.py and the README beside it",
        query_prefix="<encoder-only></s>",
        code_prefix="<encoder-only></s>",
        mode="<encoder-only>",
    ),
    Recipe(
        "CodeT5+ embedding", r"codet5p-110m-embedding(-.*)?", "own", "github.com/salesforce/CodeT5", custom_code=True
    ),
    Recipe(
        "E5",
        r"(multilingual-)?e5-(small|base|large)(-v2|-unsupervised)?",
        "mean",
        "the model cards of intfloat/e5-base-v2 and intfloat/multilingual-e5-base; github.com/microsoft/unilm, e5",
        query_prefix="query: ",
        code_prefix="passage: ",
    ),
    Recipe(
        "Jina v2", r"jina-embeddings-v2-(base|small)-.*", "mean", "their model cards", max_tokens=8192, custom_code=True
    ),
    Recipe(
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
    Recipe(
        "Jina code",
        r"jina-code-embeddings-(0\.5b|1\.5b)",
        "last",
        "the model card of jinaai/jina-code-embeddings-0.5b (nl2code) and arXiv:2508.21290",
        query_prefix="Find the most relevant code snippet given the following query:\n",
        code_prefix="Candidate code snippet:\n",
        max_tokens=8192,
    ),
)


def find_recipe(model: str) -> Recipe | None:
    """Return the recipe of a model's family by the model's name, or by that of its folder."""
    name = model.rstrip("/").rpartition("/")[2].lower()
    return next((recipe for recipe in RECIPES if re.fullmatch(recipe.name_pattern, name)), None)


def choose_prefixes(model: str, options: EmbedderOptions, prompts: Mapping[str, str] | None = None) -> dict[Kind, str]:
    """Return what stands before queries and codes: as given, else as the model's prompts or its family say."""
    recipe, own = find_recipe(model), prompts or {}
    query = own.get("query") or (recipe.query_prefix if recipe else "")
    code = next(filter(None, map(own.get, _DOCUMENT_PROMPTS)), None) or (recipe.code_prefix if recipe else "")
    return {
        "query": query if options.query_prefix is None else options.query_prefix,
        "code": code if options.code_prefix is None else options.code_prefix,
    }
