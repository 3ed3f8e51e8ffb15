"""Provides the command `agent` in a new folder for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import Commands


@pytest.fixture
def agent(commands: Path, tmp_path: Path) -> Iterator[Commands]:  # noqa: ARG001
    """The command, which runs in the folder of the test."""
    commands_in_folder = Commands(tmp_path)
    yield commands_in_folder
    commands_in_folder.kill()
