"""Cache folders follow the user's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.sandbox import folders
from agent.sandbox.folders import get_shared_cache, get_user_cache


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
