"""Tests that an export replaces its target completely or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import StorageError, UsageError
from agent.exports.target import check_target, open_target

ENTRIES = frozenset({"a"})


@pytest.mark.parametrize("entries", [frozenset(), ENTRIES])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_failed_export_leaves_the_target_unchanged(
    tmp_path: Path, entries: frozenset[str], error: BaseException
) -> None:
    target = tmp_path / "out"

    def write(content: str) -> None:
        with open_target(target, entries, force=True) as draft:
            (draft / "a" if entries else draft).write_text(content)
            if content != "old":
                raise error

    for _ in range(2):
        with pytest.raises(StorageError if isinstance(error, OSError) else KeyboardInterrupt):
            write("half")
        assert [path.name for path in tmp_path.iterdir()] == (["out"] if target.exists() else [])
        write("old")
    assert (target / "a" if entries else target).read_text() == "old"


def test_missing_parent_folders_are_created(tmp_path: Path) -> None:
    with open_target(tmp_path / "new/er/out", ENTRIES, force=False) as draft:
        (draft / "a").touch()
    assert (tmp_path / "new/er/out/a").exists()
    (tmp_path / "file").touch()
    with pytest.raises(UsageError):
        check_target(tmp_path / "file/out", ENTRIES, force=False)


def test_a_folder_with_other_files_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "out" / "a").mkdir(parents=True)
    (tmp_path / "out" / "a" / "mine").touch()
    with pytest.raises(UsageError, match="'a/mine'"):
        check_target(tmp_path / "out", frozenset({"a/theirs"}), force=True)


def test_the_working_folder_can_be_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    with open_target(Path(), ENTRIES, force=True) as draft:
        (draft / "a").touch()
    assert (tmp_path / "out" / "a").exists()


def test_a_failed_rename_restores_the_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "a").write_text("old")
    rename = Path.rename

    def fail_for_drafts(self: Path, other: Path) -> Path:
        if self.name.endswith(".tmp"):
            raise OSError(5, "Input/output error")
        return rename(self, other)

    monkeypatch.setattr(Path, "rename", fail_for_drafts)
    with (
        pytest.raises(StorageError, match="input/output error"),
        open_target(target, ENTRIES, force=True) as draft,
    ):
        (draft / "a").write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (target / "a").read_text() == "old"
