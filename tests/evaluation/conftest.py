"""Backends with stores of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.sandbox.bwrap.backend import BwrapBackend


@pytest.fixture
async def bwrap(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BwrapBackend]:
    """A bubblewrap backend; nothing was ever installed or downloaded before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    backend = BwrapBackend(store=store, pool=1)
    await backend.start(lambda _line: None)
    yield backend
    await backend.close()


@pytest.fixture
def index(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the only source of wheels, empty."""
    from tests.sandbox.wheelhouse import use_folder

    (folder := open_folder / "index").mkdir()
    use_folder(monkeypatch, folder)
    return folder
