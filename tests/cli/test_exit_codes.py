"""The class of an error determines the exit code."""

from __future__ import annotations

from tests.cli.commands import Commands

_BROKEN = """
import agent.cli
from agent.errors import RunnerCrashed
from agent.sandbox import select
from agent.sandbox.scripted import ScriptedSandbox
select.BACKENDS["bwrap"] = lambda config: ScriptedSandbox(lambda job: RunnerCrashed("the runner is gone"))
agent.cli.main()
"""


def test_broken_sandbox_exits_with_1(agent: Commands) -> None:
    program = agent.write("t.py", "def test_sum():\n    assert 1 + 1 == 2\n")
    result = agent.run_python(_BROKEN, "exec", program, "--sandbox", "bwrap")
    assert (result.code, result.out, result.err) == (1, "", "agent: the runner is gone\n")
