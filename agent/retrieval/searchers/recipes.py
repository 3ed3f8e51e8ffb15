"""How the models of each family make one vector of a text: which vectors are right is a fact of the model.

A model whose recipe is unknown is refused, since another recipe gives wrong vectors without any error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Pooling = Literal["cls", "mean", "last", "own"]
"""The vector is that of the first token, the mean over all, that of the last, or what the model itself returns."""


@dataclass(frozen=True)
class ModelOptions:
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

    `max_tokens` counts special tokens. `leading` are tokens that stand after the first token of every text.
    """

    family: str
    names: str
    pooling: Pooling
    source: str
    query_prefix: str = ""
    code_prefix: str = ""
    normalise: bool = True
    max_tokens: int = 512
    own_code: bool = False
    leading: tuple[str, ...] = ()


RECIPES: Sequence[Recipe] = (
    Recipe(
        "E5",
        r"(multilingual-)?e5-(small|base|large)(-v2|-unsupervised)?",
        "mean",
        "the model cards of intfloat/e5-base-v2 and intfloat/multilingual-e5-base",
        query_prefix="query: ",
        code_prefix="passage: ",
    ),
)


def recipe_of(model: str) -> Recipe | None:
    """Return the recipe of a model's family by the model's name, or by that of its folder."""
    name = model.rstrip("/").rpartition("/")[2].lower()
    return next((recipe for recipe in RECIPES if re.fullmatch(recipe.names, name)), None)
