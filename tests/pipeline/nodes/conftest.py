"""A bubblewrap backend for the nodes that execute programs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agent.sandbox.base import SandboxBackend
from tests.sandbox.conftest import remove_stores, start

__all__ = ["remove_stores"]


@pytest.fixture(scope="session")
async def bwrap() -> AsyncIterator[SandboxBackend]:
    """A started backend."""
    backend = await start("bwrap")
    yield backend
    await backend.close()
