"""The options for `agent train`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from agent.cli.options import AsJson, Codes, Map


@dataclass(frozen=True)
class TrainOptions:
    """Options for `agent train`. Fields that are also in `Hyperparameters` override the defaults of the recipe."""

    base: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Model to start from: a folder, or a name on the Hub.")
    ] = None
    pairs: Annotated[
        Literal["labels", "docstrings"],
        typer.Option(help="Labelled pairs, or the docstring of each snippet with the rest of the snippet."),
    ] = "labels"
    field_map: Map = None
    codes: Codes = None
    language: Annotated[str | None, typer.Option(help="Language of the codes [default: all languages].")] = None
    validation: Annotated[
        Path | None, typer.Option(metavar="BENCHMARK", help="Selects the best epoch [default: the split's own].")
    ] = None
    test: Annotated[
        list[Path] | None, typer.Option(metavar="BENCHMARK", help="Benchmark to check for leaks, and to measure.")
    ] = None
    hard_negatives: Annotated[
        str | None, typer.Option(metavar="N|none", help="Number of codes with label 0 for each relevant code.")
    ] = None
    epochs: Annotated[int | None, typer.Option(min=0, help="Maximum number of epochs; 0 does not train.")] = None
    batch_size: Annotated[int | None, typer.Option(min=2, help="Number of rows per batch.")] = None
    mini_batch: Annotated[int | None, typer.Option(min=1, help="Number of texts to embed at once.")] = None
    learning_rate: Annotated[float | None, typer.Option(min=0, max=100, help="Highest learning rate.")] = None
    warmup: Annotated[float | None, typer.Option(min=0, max=1, help="Share of steps in which the rate rises.")] = None
    max_tokens: Annotated[int | None, typer.Option("--text-tokens", min=4, help="Maximum length of a text.")] = None
    pooling: Annotated[
        Literal["cls", "mean", "last"] | None, typer.Option(help="How token vectors become the vector of a text.")
    ] = None
    in_batch: Annotated[bool | None, typer.Option(help="Use other codes of a batch as negatives (siamese).")] = None
    rewrite: Annotated[
        Literal["none", "delete", "copy", "switch"] | None, typer.Option(help="How queries are rewritten (siamese).")
    ] = None
    temperature: Annotated[
        float | None, typer.Option("--softmax-temperature", min=1e-4, max=100, help="Divisor of cosine similarities.")
    ] = None
    alpha: Annotated[float | None, typer.Option(min=0, max=10, help="Exponent α for languages (macp).")] = None
    metric: Annotated[str | None, typer.Option(metavar="NAME", help="Metric of the best epoch, such as RR@10.")] = None
    patience: Annotated[int | None, typer.Option(min=1, help="Epochs without improvement until the end.")] = None
    seed: Annotated[int | None, typer.Option(min=0, max=2**31, help="Seed of weights, batches and dropout.")] = None
    drop_leaks: Annotated[bool, typer.Option("--drop-leaks", help="Leave out pairs with held-out texts.")] = False
    allow_leaks: Annotated[bool, typer.Option("--allow-leaks", help="Train on held-out texts.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print data, leaks and steps without training.")] = False
    force: Annotated[bool, typer.Option("--force", help="Replace the model of another training.")] = False
    as_json: AsJson = False
