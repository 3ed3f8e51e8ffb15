"""The command `agent`, in a folder of its own for each test."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import Commands


@pytest.fixture(scope="session")
def _command_server() -> Iterator[subprocess.Popen[bytes]]:
    with Commands.serve() as server:
        yield server
        assert server.stdin is not None
        server.stdin.close()


@pytest.fixture
def agent(_command_server: subprocess.Popen[bytes], tmp_path: Path) -> Iterator[Commands]:
    """The command, run in the test's own folder."""
    commands = Commands(_command_server, tmp_path)
    yield commands
    commands.end()
