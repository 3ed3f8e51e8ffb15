"""Sandbox fixtures with separate stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.sandbox.bwrap.backend import BwrapBackend
from tests.sandbox.conftest import remove_stores

__all__ = ["remove_stores"]


@pytest.fixture
async def bwrap(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BwrapBackend]:
    """A bubblewrap backend with an empty store and download cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    backend = BwrapBackend(store=store, pool=1)
    await backend.start(lambda _line: None)
    yield backend
    await backend.close()


@pytest.fixture
def index(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the only source of wheels."""
    from tests.sandbox.wheelhouse import use_folder

    (folder := open_folder / "index").mkdir()
    use_folder(monkeypatch, folder)
    return folder
