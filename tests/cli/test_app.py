"""What all commands have in common."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import typer
from typer.core import TyperGroup

from agent.cli.app import app


def options(group: TyperGroup, path: str = "") -> Iterator[tuple[str, set[str]]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from options(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", {each for parameter in command.params for each in parameter.opts}


def test_each_command_has_an_answer_for_programs() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    found = dict(options(group))
    assert {"annotate", "graph", "show", "env list"} <= set(found)
    assert [name for name, taken in found.items() if "--json" not in taken] == []


@pytest.mark.parametrize(("typed", "completed"), [("agent an", "annotate"), ("agent annotate --vari", "--variant")])
def test_a_shell_completes_commands_and_options(typed: str, completed: str) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1), "_AGENT_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-m", "agent"], env={**os.environ, **words}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [completed]
