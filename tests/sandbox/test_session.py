"""A pair's session: one sandbox on first need, a fresh one when it breaks, and limits shared by all."""

from __future__ import annotations

import asyncio

import pytest

from agent.errors import DependencyUnavailable, EnvironmentGone, SandboxError
from agent.sandbox.base import CommandResult, Environment, Job, RunResult
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


async def test_a_renewed_session_begins_in_a_fresh_sandbox_with_the_commands_that_succeeded() -> None:
    backend = ScriptedSandbox([RunResult(), RunResult()], commands=[CommandResult(0, ""), CommandResult(0, "")])
    session = SandboxSession(backend)
    await session.renew()
    await session.command(["mkdir", "data"], 5)
    await session.run(JOB)
    await session.renew()
    assert (backend.acquired, backend.released) == (1, 1)
    await session.run(JOB)
    assert (backend.acquired, backend.released) == (2, 1)
    assert backend.commands == [("mkdir", "data"), ("mkdir", "data")]


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


ENVIRONMENT = Environment("k", ("six",), ("six==1.0",))
WITHIN = Job("", "", environment="k")


async def test_an_environment_that_was_removed_is_built_again_once() -> None:
    backend = ScriptedSandbox([EnvironmentGone("gone"), RunResult(seconds=2)], environments=[ENVIRONMENT] * 2)
    session = SandboxSession(backend)
    await session.environment(["six"])
    assert (await session.run(WITHIN)).seconds == 2
    assert backend.requirements == [("six",), ("six",)]
    assert backend.acquired == 2


async def test_an_environment_that_goes_again_and_again_ends_the_run() -> None:
    backend = ScriptedSandbox(lambda _: EnvironmentGone("gone"), environments=[ENVIRONMENT] * 2)
    session = SandboxSession(backend)
    await session.environment(["six"])
    with pytest.raises(EnvironmentGone):
        await session.run(WITHIN)
    assert len(backend.jobs) == 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (DependencyUnavailable("no index"), "cannot be built again: no index"),
        (Environment("other", ("six",), ("six==2.0",)), "other versions"),
    ],
)
async def test_an_environment_that_cannot_be_had_again_is_no_finding_about_the_program(
    answer: Environment | DependencyUnavailable, reason: str
) -> None:
    backend = ScriptedSandbox([EnvironmentGone("gone")], environments=[ENVIRONMENT, answer])
    session = SandboxSession(backend)
    await session.environment(["six"])
    with pytest.raises(EnvironmentGone, match=reason):
        await session.run(WITHIN)
