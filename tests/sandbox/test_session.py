"""A pair's session: one sandbox on first need, a fresh one when it breaks, and limits shared by all."""

from __future__ import annotations

import asyncio

import pytest

from agent.errors import SandboxError
from agent.sandbox.base import CommandResult, Job, RunResult
from agent.sandbox.scripted import ScriptedSandbox
from agent.sandbox.session import SandboxGates, SandboxSession

JOB = Job("", "")


async def test_no_sandbox_is_started_before_it_is_needed() -> None:
    backend = ScriptedSandbox()
    await SandboxSession(backend).close()
    assert backend.acquired == 0


async def test_all_runs_share_one_sandbox() -> None:
    backend = ScriptedSandbox([RunResult(), RunResult()])
    session = SandboxSession(backend)
    await session.run(JOB)
    await session.run(JOB)
    await session.close()
    assert backend.acquired == backend.released == 1


async def test_a_replacement_gets_the_commands_that_succeeded_before() -> None:
    backend = ScriptedSandbox(
        [SandboxError("gone"), RunResult()], commands=[CommandResult(0, ""), CommandResult(1, ""), CommandResult(0, "")]
    )
    session = SandboxSession(backend)
    await session.command(["mkdir", "data"], 5)
    await session.command(["false"], 5)
    await session.run(JOB)
    assert backend.commands == [("mkdir", "data"), ("false",), ("mkdir", "data")]


@pytest.mark.parametrize("attempts", [1, 2, 3])
async def test_it_gives_up_after_its_attempts(attempts: int) -> None:
    backend = ScriptedSandbox(lambda _: SandboxError("gone"))
    with pytest.raises(SandboxError, match="gone"):
        await SandboxSession(backend, attempts=attempts).run(JOB)
    assert backend.acquired == backend.released == attempts


async def test_no_more_programs_run_at_once_than_the_gates_let() -> None:
    now = most = 0
    two, go = asyncio.Event(), asyncio.Event()

    async def run(_: Job) -> RunResult:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if now == 2:
            two.set()
        await go.wait()
        now -= 1
        return RunResult()

    backend = ScriptedSandbox(run)
    gates = SandboxGates(starting=asyncio.Semaphore(1), running=asyncio.Semaphore(2))
    sessions = [SandboxSession(backend, gates) for _ in range(5)]
    running = asyncio.gather(*(session.run(JOB) for session in sessions))
    await two.wait()
    go.set()
    await running
    assert most == 2
