from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli import commands
from tests.cli.commands import Commands


def test_an_end_is_seen_though_it_was_told_together_with_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_SERVER", "input(); print('123\\n3', flush=True); input()")
    with Commands.serve() as server:
        assert Commands(server, tmp_path).start("--version").wait(seconds=10).code == 3
        assert server.stdin is not None
        server.stdin.write(b"\n")
