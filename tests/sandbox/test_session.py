"""A session acquires its sandbox on first use, replaces it when it fails, and respects shared limits."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agent.errors import DependencyUnavailable, EnvironmentGone, ForkRefused, SandboxError
from agent.sandbox.base import CommandResult, Environment, RunResult, SandboxJob
from agent.sandbox.scripted import ScriptedSandbox
from agent.sandbox.session import SandboxGates, SandboxSession, SharedExecutions

JOB = SandboxJob("", "")


async def test_a_replacement_repeats_the_commands_that_succeeded() -> None:
    backend = ScriptedSandbox(
        [SandboxError("gone"), RunResult()], commands=[CommandResult(0, ""), CommandResult(1, ""), CommandResult(0, "")]
    )
    session = SandboxSession(backend)
    await session.run_command(["mkdir", "data"], 5)
    await session.run_command(["false"], 5)
    await session.run(JOB)
    assert backend.commands == [("mkdir", "data"), ("false",), ("mkdir", "data")]


async def test_a_renewed_session_repeats_the_commands_in_a_fresh_sandbox() -> None:
    backend = ScriptedSandbox([RunResult(), RunResult()], commands=[CommandResult(0, ""), CommandResult(0, "")])
    session = SandboxSession(backend)
    await session.renew()
    await session.run_command(["mkdir", "data"], 5)
    await session.run(JOB)
    await session.renew()
    assert (backend.acquired, backend.released) == (1, 1)
    await session.run(JOB)
    assert (backend.acquired, backend.released) == (2, 1)
    assert backend.commands == [("mkdir", "data"), ("mkdir", "data")]


@pytest.mark.parametrize("attempts", [1, 2, 3])
async def test_a_session_gives_up_after_its_attempts(attempts: int) -> None:
    backend = ScriptedSandbox(lambda _: SandboxError("gone"))
    with pytest.raises(SandboxError, match="gone"):
        await SandboxSession(backend, attempts=attempts).run(JOB)
    assert backend.acquired == backend.released == attempts


async def test_a_refused_fork_runs_in_a_fresh_sandbox() -> None:
    job, jobs = replace(JOB, options={"module": "m"}), []

    def answer(job: SandboxJob) -> RunResult | Exception:
        jobs.append(job)
        return {1: RunResult(forked=True), 2: ForkRefused("a thread")}.get(len(jobs), RunResult(exit_code=1))

    session = SandboxSession(backend := ScriptedSandbox(answer), forks=True)
    assert (await session.run(job)).exit_code == 0
    await session.refresh()
    assert (backend.acquired, backend.released) == (1, 0)
    assert (await session.run(job)).exit_code == 1
    assert (backend.acquired, backend.released, session.forks) == (2, 1, False)
    await session.refresh()
    assert backend.released == 2
    assert [job.fork for job in jobs] == [True, True, False]


async def test_a_fork_that_ran_out_of_memory_is_repeated() -> None:
    backend = ScriptedSandbox(lambda job: RunResult(limit="memory") if job.fork else RunResult())
    session = SandboxSession(backend, forks=True)
    assert (await session.run(replace(JOB, options={"module": "m"}))).limit is None
    assert (await session.run(replace(JOB, options={"module": "m", "probe": "1"}))).limit is None
    assert (backend.acquired, session.forks) == (2, True)


def make_gates(number: int) -> SandboxGates:
    return SandboxGates(starting=asyncio.Semaphore(1), running=asyncio.Semaphore(number))


async def test_the_gates_limit_the_sandboxes_in_use() -> None:
    backend, gates, in_use = ScriptedSandbox(lambda _: RunResult()), make_gates(2), []

    async def use() -> None:
        session = SandboxSession(backend, gates)
        await session.run(JOB)
        await asyncio.sleep(0.01)  # such as a model call
        in_use.append(backend.acquired - backend.released)
        await session.renew()
        await asyncio.sleep(0)
        await session.run(JOB)
        await session.close()

    await asyncio.gather(*(use() for _ in range(5)))
    assert max(in_use) == 2
    assert backend.acquired == backend.released == 10


async def test_a_failed_sandbox_is_replaced_within_the_same_slot() -> None:
    backend = ScriptedSandbox([SandboxError("gone"), RunResult(), RunResult()])
    gates = make_gates(1)
    first, second = SandboxSession(backend, gates), SandboxSession(backend, gates)
    await first.run(JOB)
    waiting = asyncio.ensure_future(second.run(JOB))
    await asyncio.sleep(0)
    assert backend.acquired == 2
    await first.close()
    await waiting
    assert backend.acquired == 3


async def test_a_cancelled_waiter_occupies_no_slot() -> None:
    backend, gates = ScriptedSandbox(lambda _: RunResult()), make_gates(1)
    first, second, third = (SandboxSession(backend, gates) for _ in range(3))
    await first.run(JOB)
    waiting = asyncio.ensure_future(second.run(JOB))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    await second.close()
    assert gates.running.locked()
    await first.close()
    await third.run(JOB)
    await third.close()
    assert not gates.running.locked()


async def test_a_waiter_for_an_identical_run_does_not_block_it() -> None:
    executions, gates = SharedExecutions(), make_gates(1)
    backend = ScriptedSandbox(lambda job: RunResult(stdout=job.program))
    first, second = (SandboxSession(backend, gates, executions=executions) for _ in range(2))
    await first.run(SandboxJob("", "another program"))
    waiting = asyncio.ensure_future(second.run(JOB))
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await first.run(JOB)
        await first.close()
        assert (await waiting).shared


ENVIRONMENT = Environment("k", ("six",), ("six==1.0",))
WITHIN = SandboxJob("", "", environment="k")


async def test_a_removed_environment_is_rebuilt_once() -> None:
    backend = ScriptedSandbox([EnvironmentGone("gone"), RunResult(seconds=2)], environments=[ENVIRONMENT] * 2)
    session = SandboxSession(backend)
    await session.build_environment(["six"])
    assert (await session.run(WITHIN)).seconds == 2
    assert backend.requirements == [("six",), ("six",)]
    assert backend.acquired == 2


async def test_an_environment_that_is_removed_again_ends_the_run() -> None:
    backend = ScriptedSandbox(lambda _: EnvironmentGone("gone"), environments=[ENVIRONMENT] * 2)
    session = SandboxSession(backend)
    await session.build_environment(["six"])
    with pytest.raises(EnvironmentGone):
        await session.run(WITHIN)
    assert len(backend.jobs) == 2


@pytest.mark.parametrize(
    ("rebuilt", "reason"),
    [
        (DependencyUnavailable("no index"), "no index"),
        (Environment("other", ("six",), ("six==2.0",)), "versions"),
    ],
)
async def test_an_environment_that_cannot_be_rebuilt_raises(
    rebuilt: Environment | DependencyUnavailable, reason: str
) -> None:
    backend = ScriptedSandbox([EnvironmentGone("gone")], environments=[ENVIRONMENT, rebuilt])
    session = SandboxSession(backend)
    await session.build_environment(["six"])
    with pytest.raises(EnvironmentGone, match=reason):
        await session.run(WITHIN)


JOB = SandboxJob("harness", "program", ("test_a",), {"mode": "pytest"})


def make_counting_backend() -> ScriptedSandbox:
    """Return a backend whose nth run takes n seconds."""
    numbers = iter(range(1, 100))
    return ScriptedSandbox(lambda _: RunResult(seconds=next(numbers)), commands=lambda _: CommandResult(0, ""))


async def run(backend: ScriptedSandbox, executions: SharedExecutions | None, job: SandboxJob = JOB) -> float:
    session = SandboxSession(backend, executions=executions)
    try:
        return (await session.run(job)).seconds
    finally:
        await session.close()


async def test_a_repeated_program_starts_no_sandbox_and_is_marked_as_shared() -> None:
    backend, executions = make_counting_backend(), SharedExecutions()
    assert await run(backend, executions) == 1
    session = SandboxSession(backend, executions=executions)
    result = await session.run(JOB)
    assert (result.seconds, result.shared) == (1, True)
    assert (backend.acquired, len(backend.jobs)) == (1, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"program": "other"},
        {"harness": "other"},
        {"cases": ("test_b",)},
        {"options": {}},
        {"environment": "e"},
        {"timeout": 1.0},
        {"argv": ("node",)},
    ],
)
async def test_runs_with_different_inputs_are_not_shared(change: dict[str, object]) -> None:
    backend, executions = make_counting_backend(), SharedExecutions()
    await run(backend, executions)
    assert await run(backend, executions, replace(JOB, **change)) == 2  # type: ignore[arg-type]


async def test_runs_after_different_commands_are_not_shared() -> None:
    backend, executions = make_counting_backend(), SharedExecutions()
    first, second = SandboxSession(backend, executions=executions), SandboxSession(backend, executions=executions)
    await first.run(JOB)
    await first.run_command(["mkdir", "data"], 5)
    assert (await first.run(JOB)).seconds == 2
    await second.run_command(["mkdir", "data"], 5)
    assert (await second.run(JOB)).seconds == 2


async def test_errors_are_not_shared() -> None:
    results = iter([SandboxError("gone"), RunResult(seconds=2)])
    backend, executions = ScriptedSandbox(lambda _: next(results)), SharedExecutions()
    with pytest.raises(SandboxError):
        await SandboxSession(backend, attempts=1, executions=executions).run(JOB)
    assert await run(backend, executions) == 2


class GatedBackend:
    """A backend whose runs wait for an event."""

    def __init__(self) -> None:
        self.started: asyncio.Queue[None] = asyncio.Queue()
        self.go = asyncio.Event()
        self.backend = ScriptedSandbox(self._run)

    async def _run(self, _: SandboxJob) -> RunResult:
        self.started.put_nowait(None)
        await self.go.wait()
        return RunResult(seconds=len(self.backend.jobs))


async def test_identical_concurrent_runs_share_one_execution() -> None:
    gated, executions = GatedBackend(), SharedExecutions()
    waiting = [asyncio.ensure_future(run(gated.backend, executions)) for _ in range(3)]
    await gated.started.get()
    gated.go.set()
    assert await asyncio.gather(*waiting) == [1, 1, 1]


async def test_when_the_leader_is_cancelled_the_next_waiter_runs_in_its_own_sandbox() -> None:
    gated, executions = GatedBackend(), SharedExecutions()
    first = asyncio.ensure_future(run(gated.backend, executions))
    await gated.started.get()
    second = asyncio.ensure_future(run(gated.backend, executions))
    await asyncio.sleep(0)
    first.cancel()
    await gated.started.get()
    gated.go.set()
    assert await second == 2
    assert first.cancelled()
    assert gated.backend.acquired == gated.backend.released == 2
