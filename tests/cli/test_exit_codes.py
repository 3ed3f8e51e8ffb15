"""A command that ends in an error ends with the code that the tree of errors gives it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import errors
from agent.cli import exit_code
from tests.cli.commands import environment

_BROKEN = """
import agent.cli
from agent.errors import RunnerCrashed
from agent.sandbox import select
from agent.sandbox.scripted import ScriptedSandbox
select.BACKENDS["bwrap"] = lambda config: ScriptedSandbox(lambda job: RunnerCrashed("the runner is gone"))
agent.cli.main()
"""


def below(kind: type[errors.AgentError]) -> Iterator[type[errors.AgentError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from below(each)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.UsageError, 2),
        (errors.RunStopped, 3),
        (errors.PairError, 1),
        (errors.DependencyUnavailable, 1),
    ],
)
def test_each_branch_of_the_tree_has_its_code(kind: type[errors.AgentError], code: int) -> None:
    assert {each: exit_code(each.__new__(each)) for each in below(kind)} == dict.fromkeys(below(kind), code)


def test_a_sandbox_that_breaks_under_a_program_is_no_wrong_usage(tmp_path: Path) -> None:
    program = tmp_path / "t.py"
    program.write_text("def test_sum():\n    assert 1 + 1 == 2\n")
    command = [sys.executable, "-c", _BROKEN, "exec", str(program), "--sandbox", "bwrap"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "agent: the runner is gone\n"
