"""Help and shell completion of all commands."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cli.commands import Commands


@pytest.mark.parametrize(("typed", "completed"), [("agent an", "annotate"), ("agent annotate --vari", "--variant")])
def test_a_shell_completes_commands_and_options(typed: str, completed: str) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1), "_AGENT_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-m", "agent"], env={**os.environ, **words}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [completed]


def test_help_shows_whole_sentences(agent: Commands) -> None:
    for group in ([], ["corpus"], ["retrieval"], ["requests"], ["runs"], ["env"]):
        assert "..." not in agent(*group, "--help").out.partition("Commands:")[2]
