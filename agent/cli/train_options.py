"""The options for `agent train`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from agent.cli.options import AsJson, Codes, Map

Option = typer.Option
# fmt: off


@dataclass(frozen=True)
class TrainOptions:
    """Options for `agent train`. Fields that are also in `Hyperparameters` override the defaults of the recipe."""

    base: Annotated[str | None, Option(
        metavar="MODEL", help="Model to start from: a folder, or a name on the Hugging Face Hub.")] = None
    pairs: Annotated[Literal["labels", "docstrings"], Option(
        help="Pairs to train on: labelled pairs, or the docstring of each code with the rest of the code.")] = "labels"
    field_map: Map = None
    codes: Codes = None
    language: Annotated[str | None, Option(help="Language of the codes [default: all languages].")] = None
    validation: Annotated[Path | None, Option(
        metavar="BENCHMARK", help="Benchmark that selects the best epoch [default: that of a split folder].")] = None
    test: Annotated[list[Path] | None, Option(
        metavar="BENCHMARK", help="Benchmark to check for leaks and to measure at the end. Repeatable.")] = None
    hard_negatives: Annotated[str | None, Option(
        metavar="N|none", help="Number of codes with label 0 per relevant code, filled up with others.")] = None
    epochs: Annotated[int | None, Option(
        min=0, help="Maximum number of epochs. With 0, the model is written untrained.")] = None
    batch_size: Annotated[int | None, Option(min=2, help="Number of rows per batch.")] = None
    mini_batch: Annotated[int | None, Option(min=1, help="Number of texts to embed at once, to save memory.")] = None
    learning_rate: Annotated[float | None, Option(min=0, max=100, help="Highest learning rate.")] = None
    warmup: Annotated[float | None, Option(min=0, max=1, help="Share of steps in which the rate rises.")] = None
    max_tokens: Annotated[int | None, Option(
        "--text-tokens", min=4, help="Number of tokens at which texts are truncated.")] = None
    pooling: Annotated[Literal["cls", "mean", "last"] | None, Option(
        help="How token vectors become the vector of a text.")] = None
    in_batch: Annotated[bool | None, Option(help="Use the other codes of a batch as negatives (siamese).")] = None
    rewrite: Annotated[Literal["none", "delete", "copy", "switch"] | None, Option(
        help="How queries are rewritten (siamese).")] = None
    temperature: Annotated[float | None, Option(
        "--softmax-temperature", min=1e-4, max=100, help="Divisor of cosine similarities.")] = None
    alpha: Annotated[float | None, Option(min=0, max=10, help="Exponent α for batches of one language (macp).")] = None
    metric: Annotated[str | None, Option(
        metavar="NAME", help="Metric that selects the best epoch, such as RR@10 or R@100.")] = None
    patience: Annotated[int | None, Option(
        min=1, help="Number of epochs without improvement after which training stops.")] = None
    seed: Annotated[int | None, Option(min=0, max=2**31, help="Seed of weights, batches and dropout.")] = None
    drop_leaks: Annotated[bool, Option("--drop-leaks", help="Leave out pairs with held-out texts.")] = False
    allow_leaks: Annotated[bool, Option("--allow-leaks", help="Train on held-out texts.")] = False
    dry_run: Annotated[bool, Option("--dry-run", help="Print data, leaks and steps without training.")] = False
    force: Annotated[bool, Option("--force", help="Replace the model of another training in the folder.")] = False
    as_json: AsJson = False
