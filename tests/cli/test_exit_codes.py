"""The class of an error determines the exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cli.commands import make_environment

_BROKEN = """
import agent.cli
from agent.errors import RunnerCrashed
from agent.sandbox import select
from agent.sandbox.scripted import ScriptedSandbox
select.BACKENDS["bwrap"] = lambda config: ScriptedSandbox(lambda job: RunnerCrashed("the runner is gone"))
agent.cli.main()
"""


def test_broken_sandbox_exits_with_1(tmp_path: Path) -> None:
    program = tmp_path / "t.py"
    program.write_text("def test_sum():\n    assert 1 + 1 == 2\n")
    command = [sys.executable, "-c", _BROKEN, "exec", str(program), "--sandbox", "bwrap"]
    result = subprocess.run(command, cwd=tmp_path, env=make_environment(), capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "agent: the runner is gone\n"
