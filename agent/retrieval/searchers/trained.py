"""The files in a folder that `agent train` wrote, and the record of how the model in it was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from agent.errors import RunFolderError
from agent.runs.store import files
from agent.types import SCHEMA_VERSION

RECORD = "training.json"
HEAD = "head.safetensors"
RecipeName = Literal["biencoder", "siamese", "coclr", "macp", "unif"]
WITHOUT_HEAD = ("biencoder", "macp")
"""Recipes whose models `hf:` uses correctly, because the score is the inner product of the vectors."""
Finite = Annotated[float, Field(allow_inf_nan=False)]


class BaseRecord(BaseModel, frozen=True):
    """The model that training started from. Without a base model (`unif`), there is no name."""

    name: str | None = None
    revision: str | None = None
    licence: str | None = None


class ContrastRecord(BaseModel, frozen=True):
    """The mutants of `--contrast`: the file, the numbers of mutants and functions, and the hash of the texts."""

    name: str
    count: int
    functions: int
    sha256: str


class DataRecord(BaseModel, frozen=True):
    """The training data.

    `labels` has the number of pairs by label (`1`, `0`, `undecided`), and `split` the number of queries by split.
    `held_out` has the hashes of the validation and test benchmarks.
    `leaks` has the number of leaks by held-out set and kind. It is empty if there are none.
    """

    name: str
    sha256: str
    labels: dict[str, int] = {}
    split: dict[str, int] = {}
    held_out: dict[str, str] = {}
    sources: dict[str, int] = {}
    licences: dict[str, int] = {}
    leaks: dict[str, dict[str, int]] = {}
    contrasts: ContrastRecord | None = None


class EpochRecord(BaseModel, frozen=True):
    """The state after an epoch: the number of optimiser steps, the mean training loss, and the validation scores."""

    epoch: int
    step: int
    loss: Finite | None = None
    scores: dict[str, Finite] = {}


class TrainingRecord(BaseModel, frozen=True):
    """The content of `training.json`, which describes how the model in the same folder was trained.

    `settings` holds the hyperparameters, and `versions` maps libraries to versions. `best_epoch` is the epoch whose
    weights are in the folder, with 0 for the untrained model. It is None if training was stopped before the end of an
    epoch. With the setting `mix`, the weights are mixed with those of the untrained model, and `mixed` has the
    validation scores of the mixture. `tests` has the scores of the model in the folder on the test benchmarks, and
    `untrained_tests` those of the untrained model. An interrupted training is not `finished`. `losses` holds at most
    200 pairs of a step and the training loss at this step. `omitted` counts the rows that were left out of the first
    epoch, by rule.
    """

    schema_version: int = Field(default=SCHEMA_VERSION, alias="schema", serialization_alias="schema")
    recipe: RecipeName
    base: BaseRecord = BaseRecord()
    data: DataRecord
    settings: dict[str, Any] = {}
    versions: dict[str, str] = {}
    epochs: list[EpochRecord] = []
    best_epoch: int | None = None
    finished: bool = False
    mixed: dict[str, Finite] = {}
    tests: dict[str, dict[str, Finite]] = {}
    untrained_tests: dict[str, dict[str, Finite]] = {}
    omitted: dict[str, int] = {}
    losses: Annotated[list[tuple[int, Finite]], Field(max_length=200)] = []

    @property
    def beats_untrained(self) -> bool | None:
        """Whether the model has a higher validation score than the untrained model. None if this is unknown."""
        metric = self.settings.get("metric")
        scores = {epoch.epoch: epoch.scores[metric] for epoch in self.epochs if metric in epoch.scores}
        if self.best_epoch not in scores or 0 not in scores:
            return None
        return self.mixed.get(str(metric), scores[self.best_epoch]) > scores[0]

    def describe_without_seed(self) -> str:
        """Return everything that determines the training, except its seed, as JSON."""
        fields = {"recipe": True, "base": True, "data": True, "settings": True}
        return self.model_dump_json(include=fields, exclude={"settings": {"seed"}})


def read_record(folder: Path) -> TrainingRecord | None:
    """Read the `training.json` of a folder. Return None if there is no such file.

    Raises:
        RunFolderError: the file is damaged, or is a link or not a regular file.
    """
    path = folder / RECORD
    if path.is_symlink():
        raise RunFolderError(f"{path}: is a link. Replace it with a regular file.")
    if not path.exists():
        return None
    remedy = "Train the model again, or pass another folder."
    return files.read_document(path, TrainingRecord, expected="a training record", remedy=remedy)
