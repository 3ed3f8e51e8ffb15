"""The scripted sandbox returns only the results in its script."""

from __future__ import annotations

import pytest

from agent.errors import SandboxError
from agent.sandbox.base import RunResult, SandboxJob
from agent.sandbox.scripted import ScriptedSandbox, ScriptExhausted

JOB = SandboxJob(harness="", program="print(1)")


async def test_results_come_in_order_and_jobs_are_recorded() -> None:
    backend = ScriptedSandbox([RunResult(stdout="one"), RunResult(stdout="two")])
    sandbox = await backend.acquire()
    assert [(await sandbox.run(JOB)).stdout, (await sandbox.run(JOB)).stdout] == ["one", "two"]
    assert backend.jobs == [JOB, JOB]


async def test_an_exhausted_script_names_the_request() -> None:
    backend = ScriptedSandbox([RunResult()])
    sandbox = await backend.acquire()
    await sandbox.run(JOB)
    with pytest.raises(ScriptExhausted, match=r"run 2: .*print\(1\)"):
        await sandbox.run(JOB)
    with pytest.raises(ScriptExhausted, match=r"command 1: \('ls',\)"):
        await sandbox.run_command(["ls"], 1.0)
    with pytest.raises(ScriptExhausted, match=r"environment 1: \('numpy',\)"):
        await backend.environments.build(["numpy"])
    assert issubclass(ScriptExhausted, SandboxError)


async def test_a_released_sandbox_refuses_requests() -> None:
    backend = ScriptedSandbox([RunResult()])
    sandbox = await backend.acquire()
    await sandbox.release()
    await sandbox.release()
    with pytest.raises(SandboxError, match="released"):
        await sandbox.run(JOB)
    assert backend.released == 1
