"""The folder of a trained model."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from agent.errors import RunFolderError, UsageError
from agent.retrieval.searchers.trained import TrainingRecord, read_record
from agent.training.model_folder import (
    Training,
    check_folder,
    choose_settings,
    find_checkpoint,
    make_record,
    open_folder,
    write_model,
)
from agent.training.recipe import Hyperparameters
from tests.training.tiny import make_data

CARD = SimpleNamespace(base_model="owner/model", base_model_revision="1", license="mit")


def make_job(out: Path, **changes: Any) -> Training:
    unused: Any = dict.fromkeys(("progress", "report", "is_stopping")) | {"rows": SimpleNamespace(omitted={})}
    fields = {"recipe": SimpleNamespace(name="siamese"), "data": make_data(), "settings": Hyperparameters()}
    return Training(**(unused | fields | {"base": "owner/model", "out": out} | changes))


@pytest.fixture(autouse=True)
def versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.training.model_folder.version", lambda _: "1.0")


def add_checkpoint(out: Path, step: int, state: str = "{}") -> Path:
    folder = out / ".training" / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").touch()
    if state:
        (folder / "trainer_state.json").write_text(state)
    return folder


def open_once(job: Training, card: Any = CARD) -> TrainingRecord | None:
    with open_folder(job, make_record(job, card)) as finished:
        return finished


def test_the_newest_complete_checkpoint_is_resumed(tmp_path: Path) -> None:
    assert find_checkpoint(tmp_path) is None
    add_checkpoint(tmp_path, 9)
    newest = add_checkpoint(tmp_path, 10)
    add_checkpoint(tmp_path, 11, state="")
    add_checkpoint(tmp_path, 12, state='{"epoch": 1')
    assert find_checkpoint(tmp_path) == newest


@pytest.mark.parametrize(
    ("recipe", "base", "expected"),
    [
        ("macp", "owner/model", ("sentence-transformers", "sentence-similarity", "owner/model")),
        ("coclr", "./base", ("test-driven-annotator", "text-ranking", None)),
        ("unif", None, ("test-driven-annotator", "text-ranking", None)),
    ],
)
def test_a_card_names_the_library_that_loads_the_model(
    tmp_path: Path, recipe: str, base: str | None, expected: tuple[str | None, ...]
) -> None:
    card = SimpleNamespace(base_model=base, base_model_revision=None, license=base and "mit")
    write_model(tmp_path, lambda _: None, make_record(make_job(tmp_path, recipe=SimpleNamespace(name=recipe)), card))
    header = yaml.safe_load((tmp_path / "README.md").read_text().split("---\n")[1])
    assert tuple(map(header.get, ("library_name", "pipeline_tag", "base_model"))) == expected
    assert header["license"] == ("mit" if base else "unknown")


@pytest.mark.parametrize("name", ["file", "link", "folder", "file/models/out"])
def test_a_path_that_is_no_folder_of_a_training_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "folder" / "notes").mkdir(parents=True)
    with pytest.raises(UsageError):
        check_folder(tmp_path / name)
    with pytest.raises(UsageError):
        open_once(make_job(tmp_path / name, force=True))


@pytest.mark.parametrize(
    ("changes", "card", "name"),
    [
        ({"settings": Hyperparameters(seed=1)}, CARD, "seed"),
        ({"data": make_data(validation=None)}, CARD, "data"),
        ({"data": make_data(sha256="1")}, CARD, "data"),
        ({"recipe": SimpleNamespace(name="coclr")}, CARD, "recipe"),
        ({}, SimpleNamespace(**{**vars(CARD), "base_model_revision": "2"}), "base"),
    ],
)
def test_a_folder_with_checkpoints_belongs_to_one_training(tmp_path: Path, changes: Any, card: Any, name: str) -> None:
    assert open_once(make_job(tmp_path)) is None
    assert open_once(make_job(tmp_path, **changes), card) is None
    checkpoint = add_checkpoint(tmp_path, 1)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"}
    with pytest.raises(RunFolderError, match=rf"\b{name}\b"):
        open_once(make_job(tmp_path))
    assert {path: path.read_bytes() for path in before} == before
    assert open_once(make_job(tmp_path, **changes), card) is None
    assert open_once(make_job(tmp_path, force=True)) is None
    assert not checkpoint.exists()


def test_an_older_version_used_float32_and_the_defaults_of_new_settings(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    open_once(job)
    add_checkpoint(tmp_path, 1)
    path = tmp_path / ".training" / "training.json"
    record = json.loads(path.read_text())
    for name in ("best", "mix", "precision"):
        del record["settings"][name]
    path.write_text(json.dumps(record))
    settings = choose_settings(job, "bfloat16")
    assert (settings.precision, open_once(job._replace(settings=settings))) == ("float32", None)


def test_a_moved_base_model_is_the_same(tmp_path: Path) -> None:
    open_once(make_job(tmp_path))
    add_checkpoint(tmp_path, 1)
    assert open_once(make_job(tmp_path), SimpleNamespace(**{**vars(CARD), "base_model": "../model"})) is None


def test_a_folder_is_locked_during_training(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    with open_folder(job, make_record(job, CARD)), pytest.raises(RunFolderError):
        open_once(job)


def test_leaks_and_licences_are_recorded(tmp_path: Path) -> None:
    leaks = {"web": {"queries": 2, "codes": 0}, "clean": {"queries": 0, "codes": 0}}
    record = make_record(make_job(tmp_path, leaks=leaks), CARD)
    assert record.data.leaks == {"web": leaks["web"]}
    assert record.base.model_dump() == {"name": "owner/model", "revision": "1", "licence": "mit"}
    assert read_record(tmp_path) is None
