"""Defines the interface of recipes, and their hyperparameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Literal, Protocol

from agent.errors import needs_extra
from agent.retrieval.searchers.presets import Precision
from agent.training.data import TrainingData
from agent.types import Frozen, Progress

Rewriting = Literal["none", "delete", "copy", "switch"]
Form = Literal["ranking", "labels"]
"""The rows of a recipe: `ranking` rows have a query, a relevant snippet and hard negatives, and `labels` rows have
a query, a snippet and a label. With `ranking`, the other snippets of a batch serve as negatives."""


class Hyperparameters(Frozen):
    """Everything that determines a training run, besides the data, the base model and the recipe.

    `warmup` is the share of steps in which the learning rate rises to `learning_rate`. Then it falls linearly to 0.
    `max_tokens` truncates texts (None: the limit of the base model). `hard_negatives` is the number of snippets
    with label 0 for each relevant snippet (None: in-batch negatives only). `temperature` divides cosine similarities.
    `mini_batch` is the number of texts that are embedded at once (None: the whole batch). `patience` is the number of
    epochs without improvement after which training stops (None: never). With `alpha`, each batch has one language,
    drawn with probability proportional to n^alpha for n rows (None: batches mix languages). `best` says whether the
    untrained model may be the best epoch. `mix` is the share of the best epoch's weights in the final model, and the
    untrained model has the rest (None: all). A training records the precision that `auto` stands for. Settings that a
    recipe does not use are ignored.
    """

    epochs: int = 3
    batch_size: int = 32
    learning_rate: float = 2e-5
    warmup: float = 0.1
    max_tokens: int | None = 256
    seed: int = 0
    hard_negatives: int | None = None
    mini_batch: int | None = None
    patience: int | None = None
    metric: str = "nDCG@10"
    pooling: Literal["cls", "mean", "last"] | None = None
    temperature: float = 0.05
    alpha: float | None = None
    in_batch: bool = False
    rewrite: Rewriting = "none"
    precision: Precision = "auto"
    best: Literal["trained", "any"] = "trained"
    mix: float | None = None


class Recipe(Protocol):
    """Describes how to train a searcher.

    `name` is the name on the command line, `source` cites the paper, and `defaults` are the paper's hyperparameters.
    `unused` names hyperparameters that have no effect, and `contrast` if the recipe cannot train on contrasts.
    """

    name: str
    source: str
    form: Form
    defaults: Hyperparameters
    unused: frozenset[str]

    def choose_base(self, base: str | None) -> str | None:
        """Return the base model: `base`, or the default of the recipe. None means that the recipe has no base model.

        Raises:
            UsageError: the recipe needs a base model, or has none.
        """

    def make_model(self, base: str | None, data: TrainingData, settings: Hyperparameters, progress: Progress) -> Any:
        """Return the `SentenceTransformer` to train. `base` is the result of `choose_base`.

        Raises:
            UsageError: the base model or the data cannot be used.
        """

    def make_loss(self, model: Any, settings: Hyperparameters) -> Any:
        """Return the loss, a `torch.nn.Module` that maps features and labels to a scalar.

        If the loss has weights of its own, they are in its attribute `head`, and are saved in `head.safetensors`.
        """

    def make_scorer(self, loss: Any) -> Callable[[Any, Any], Any]:
        """Return a function that maps vectors of queries and of snippets to a matrix of scores (queries × snippets)."""


RECIPES: Mapping[str, str] = {
    "biencoder": "biencoder:BiEncoder",
    "siamese": "siamese:Siamese",
    "coclr": "siamese:CoClr",
    "macp": "biencoder:Macp",
    "unif": "unif:Unif",
}
"""The recipes, as `module:Class` in `agent.training`."""


def load_recipe(name: str) -> Recipe:
    """Return a recipe. Imports torch.

    Raises:
        ExtraMissing: a library is not installed.
    """
    module, _, kind = RECIPES[name].partition(":")
    with needs_extra("train"):
        recipe: Recipe = getattr(import_module(f"agent.training.{module}"), kind)()
    return recipe
