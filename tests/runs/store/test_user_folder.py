"""A folder with a default name is continued only by the user who made it, in the place where it was made."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from agent.errors import RunFolderError
from agent.runs.store.files import MADE
from agent.runs.store.user_folder import check_made, record_made


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def make(folder: Path) -> Path:
    record_made(folder)
    (folder / "manifest.json").touch()
    return folder


def test_a_folder_is_recorded_before_it_has_content(tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "runs/x"
    assert (check_made(folder), home.exists()) == (False, False)
    folder.mkdir(parents=True)
    (folder / ".lock").touch()
    assert check_made(folder) is False
    make(folder)
    record_made(folder)
    assert check_made(folder) is True


def test_a_folder_of_someone_else_is_refused_however_it_came_to_its_place(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = make(tmp_path / "runs/own")
    copy = shutil.copytree(own, tmp_path / "runs/copy")
    shutil.rmtree(own)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other home"))
    planted = make(own)  # in the place of a folder that this user made
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    unmarked, pipe = tmp_path / "runs/unmarked", tmp_path / "runs/pipe"
    for folder in (unmarked, pipe):
        folder.mkdir()
        (folder / "annotations.jsonl").touch()
    os.mkfifo(pipe / MADE)
    linked = shutil.copytree(copy, tmp_path / "runs/linked")
    (linked / MADE).unlink()
    (linked / MADE).symlink_to(copy / MADE)
    for folder in (copy, linked, planted, unmarked, pipe):
        with pytest.raises(RunFolderError, match="-o"):
            check_made(folder)
        with pytest.raises(RunFolderError):
            record_made(folder)


def test_the_record_is_written_through_no_link(tmp_path: Path, home: Path) -> None:  # noqa: ARG001
    folder, victim = tmp_path / "runs/x", tmp_path / "bashrc"
    folder.mkdir(parents=True)
    (folder / MADE).symlink_to(victim)
    record_made(folder)
    assert (victim.exists(), check_made(folder)) == (False, True)
