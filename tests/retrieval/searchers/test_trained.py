"""Folders that `agent train` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.errors import RunFolderError
from agent.retrieval.searchers.trained import RECORD, BaseRecord, DataRecord, EpochRecord, TrainingRecord, read_record


def make_record(recipe: Any = "siamese") -> TrainingRecord:
    return TrainingRecord(
        recipe=recipe,
        base=BaseRecord(name="base"),
        data=DataRecord(name="pairs", sha256="0" * 64, labels={"1": 2, "0": 1}),
        epochs=[EpochRecord(epoch=1, step=3, loss=0.5, scores={"nDCG@10": 0.25})],
        best_epoch=1,
        losses=[(3, 0.5)],
    )


def save_record(folder: Path, recipe: Any = "siamese") -> Path:
    """Write a `training.json` to a folder."""
    (folder / RECORD).write_text(make_record(recipe).model_dump_json(by_alias=True))
    return folder


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_record(save_record(tmp_path)) == make_record()


def test_a_folder_without_a_record_has_none(tmp_path: Path) -> None:
    assert read_record(tmp_path) is None
    assert read_record(tmp_path / "nowhere") is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"recipe": "other"}', '{"schema": 9, "recipe": "siamese"}'])
def test_a_damaged_record_raises_an_error_with_its_path(tmp_path: Path, content: str) -> None:
    (tmp_path / RECORD).write_text(content)
    with pytest.raises(RunFolderError, match=RECORD):
        read_record(tmp_path)


def test_a_record_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / RECORD).symlink_to(save_record(tmp_path / "other") / RECORD)
    with pytest.raises(RunFolderError, match=RECORD):
        read_record(tmp_path)
