"""The command `agent`, in a folder of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import Commands


@pytest.fixture
def agent(commands: Path, tmp_path: Path) -> Iterator[Commands]:  # noqa: ARG001
    """The command, run in the test's own folder."""
    made = Commands(tmp_path)
    yield made
    made.end()
