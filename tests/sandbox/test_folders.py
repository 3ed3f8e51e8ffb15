"""Cache folders follow the user's settings, and files are replaced atomically."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from agent.sandbox import folders
from agent.sandbox.folders import get_shared_cache, get_user_cache, replace_atomically


def test_concurrent_writers_leave_one_complete_file(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file"

    def write(number: int) -> None:
        with replace_atomically(target) as new:
            new.write_text(str(number) * 10_000)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(1, 9)))
    assert len(set(target.read_text())) == 1
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    with suppress(RuntimeError), replace_atomically(target) as new:
        new.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_cache_folder_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert get_user_cache() == tmp_path / "test-driven-annotator"
    monkeypatch.setattr(folders.os, "geteuid", lambda: 1000)
    assert get_shared_cache() == get_user_cache()
    monkeypatch.setattr(folders.os, "geteuid", lambda: 0)
    assert get_shared_cache() == Path("/var/cache/test-driven-annotator")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert get_user_cache() == tmp_path / ".cache" / "test-driven-annotator"
