"""Writes the folder of a trained model, and recognises the folder of the same training.

The folder of an unfinished training has a subfolder `.training` with checkpoints and a record without epochs.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from agent.errors import RunFolderError, UsageError
from agent.retrieval.searchers.presets import Precision
from agent.retrieval.searchers.trained import (
    HEAD,
    RECORD,
    WITHOUT_HEAD,
    BaseRecord,
    DataRecord,
    TrainingRecord,
    read_record,
)
from agent.runs.store import files
from agent.training.data import TrainingData
from agent.training.recipe import Hyperparameters, Recipe
from agent.training.rows import EpochRows
from agent.types import Progress

STATE = ".training"
_CARD = """---
{header}
---

Code searcher of `agent train --recipe {recipe}`, for `agent retrieval run BENCHMARK --searcher model:FOLDER`:

```json
{record}
```
"""
_LIBRARIES = ("test-driven-annotator", "sentence-transformers", "transformers", "accelerate", "torch")


class Training(NamedTuple):
    """A training on the `rows` of `data`. `out` is the folder for the model.

    With `force`, the model of another training is replaced.

    `report` receives the number of training steps, their total and the last loss, and `progress` receives other work.
    Training stops after the first step at whose end `is_stopping` returns true.
    """

    recipe: Recipe
    data: TrainingData
    rows: EpochRows
    settings: Hyperparameters
    base: str | None
    out: Path
    progress: Progress
    report: Callable[[int, int, float], None]
    is_stopping: Callable[[], bool]
    leaks: Mapping[str, Mapping[str, int]] = {}
    force: bool = False


def choose_settings(training: Training, precision: Precision) -> Hyperparameters:
    """Replace the precision `auto`: by that of the training in the folder if there is one, otherwise by `precision`."""
    if training.settings.precision != "auto":
        return training.settings
    started = None if training.force else read_record(training.out / STATE) or read_record(training.out)
    recorded = started.settings.get("precision", "float32") if started else precision
    return training.settings.model_copy(update={"precision": recorded})


def make_record(training: Training, card: Any) -> TrainingRecord:
    """Describe a training that has not started. `card` is the `model_card_data` of the model to train."""
    data = training.data
    parts = {"validation": data.validation} if data.validation else {}
    parts |= {f"test {number}": test for number, test in enumerate(data.tests, start=1)}
    return TrainingRecord(
        recipe=training.recipe.name,  # type: ignore[arg-type]  # validated
        base=BaseRecord(name=card.base_model, revision=card.base_model_revision, licence=card.license),
        data=DataRecord(
            name=data.name,
            sha256=data.sha256,
            labels=dict(data.labels),
            split={"train": len(data.queries), **{name: len(part.queries) for name, part in parts.items()}},
            held_out={name: part.sha256 for name, part in parts.items()},
            sources=dict(data.sources),
            licences=dict(data.licences),
            leaks={name: dict(counts) for name, counts in training.leaks.items() if any(counts.values())},
            contrasts=data.contrasts.record if data.contrasts else None,
        ),
        omitted=dict(training.rows.omitted),
        settings=training.settings.model_dump(mode="json"),
        versions={name: version(name) for name in _LIBRARIES},
    )


def check_folder(out: Path) -> None:
    """Check that a model can be written to a folder, which is new or empty, or belongs to a training.

    Raises:
        UsageError: the path is a file, a link, a folder with other content, or in a folder that is not writable.
    """
    existing = next(path for path in (out, *out.absolute().parents) if os.path.lexists(path))
    if out.is_symlink() or not (existing.is_dir() and os.access(existing, os.W_OK)):
        raise UsageError(f"-o: {existing} is a link or not a writable folder. Pass another folder.")
    if out.exists() and any(out.iterdir()) and not ((out / RECORD).is_file() or (out / STATE / RECORD).is_file()):
        raise UsageError(f"-o: {out} contains files that `agent train` did not write. Pass a new folder.")


@contextmanager
def open_folder(training: Training, record: TrainingRecord) -> Iterator[TrainingRecord | None]:
    """Lock the folder of a training. Yield the record of the finished model if there is one.

    Raises:
        UsageError: the folder belongs to another training, is in use, or has other content.
        StorageError: the folder cannot be written.
    """
    out = training.out
    state = training.out / STATE
    check_folder(out)
    with files.writing(out):
        state.mkdir(parents=True, exist_ok=True)
    lock = files.lock_folder(state)
    try:
        started = read_record(state)
        written = read_record(out)
        if training.force or not (written or find_checkpoint(out)):
            with files.writing(out):
                for path in (out / RECORD, out / HEAD):
                    path.unlink(missing_ok=True)
                for path in state.glob("checkpoint-*"):
                    shutil.rmtree(path)
            started = written = None
        if changes := sorted({name for old in (started, written) if old for name in _list_changes(old, record)}):
            message = f"belongs to a training that differs in: {', '.join(changes)}. Pass another folder, or --force."
            raise RunFolderError(f"{out}: {message}")
        if written and not started:
            shutil.rmtree(state)
            yield written
        else:
            _write_record(state, record)
            yield None
    finally:
        os.close(lock)


def find_checkpoint(out: Path) -> Path | None:
    """Return the newest complete checkpoint. The trainer writes its state last."""
    states = (out / STATE).glob("checkpoint-*/trainer_state.json")
    complete = (path.parent.absolute() for path in states if path.read_bytes().rstrip().endswith(b"}"))
    return max(complete, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def write_model(out: Path, save_weights: Callable[[str], None], record: TrainingRecord) -> None:
    """Write weights, card and record. The record is the last file, so that it always describes the weights."""
    with files.writing(out):
        (out / RECORD).unlink(missing_ok=True)
        save_weights(str(out))
        text = record.model_dump_json(indent=2, exclude={"losses"})
        card = _CARD.format(header="\n".join(_iterate_card_fields(record)), recipe=record.recipe, record=text)
        (out / "README.md").write_text(card, encoding="utf-8")
    _write_record(out, record)


def _iterate_card_fields(record: TrainingRecord) -> Iterator[str]:
    """Iterate over the fields of the card for the Hugging Face Hub. A base model in a folder has no name there."""
    loads = record.recipe in WITHOUT_HEAD
    base = record.base.name or ""
    yield f"library_name: {'sentence-transformers' if loads else 'test-driven-annotator'}"
    yield f"pipeline_tag: {'sentence-similarity' if loads else 'text-ranking'}"
    yield f"tags: [{'sentence-transformers, ' if loads else ''}code-search]"
    yield f"license: {record.base.licence or 'unknown'}"
    if re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", base) and not Path(base).exists():
        yield f"base_model: {base}"


def _write_record(folder: Path, record: TrainingRecord) -> None:
    with files.replacing(folder / RECORD) as path:
        path.write_bytes(record.model_dump_json(by_alias=True, indent=2).encode() + b"\n")


def _list_changes(old: TrainingRecord, new: TrainingRecord) -> list[str]:
    """Name what differs between two trainings. A base model is identified by its revision, not by its path."""
    one, other = (
        {"recipe": each.recipe, "base": each.base.revision, "data": (each.data.sha256, each.data.held_out)}
        | {**Hyperparameters().model_dump(mode="json"), "precision": "float32"}  # what older records do not state
        | each.settings
        for each in (old, new)
    )
    return [name.replace("_", "-") for name in one | other if one.get(name) != other.get(name)]
