"""A pair's session: one sandbox on first need, a fresh one when it breaks, and limits shared by all."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agent.errors import DependencyUnavailable, EnvironmentGone, SandboxError
from agent.sandbox.base import CommandResult, Environment, RunResult, SandboxJob
from agent.sandbox.scripted import ScriptedSandbox
from agent.sandbox.session import SandboxGates, SandboxSession, SharedExecutions

JOB = SandboxJob("", "")


async def test_a_replacement_gets_the_commands_that_succeeded_before() -> None:
    backend = ScriptedSandbox(
        [SandboxError("gone"), RunResult()], commands=[CommandResult(0, ""), CommandResult(1, ""), CommandResult(0, "")]
    )
    session = SandboxSession(backend)
    await session.run_command(["mkdir", "data"], 5)
    await session.run_command(["false"], 5)
    await session.run(JOB)
    assert backend.commands == [("mkdir", "data"), ("false",), ("mkdir", "data")]


async def test_a_renewed_session_begins_in_a_fresh_sandbox_with_the_commands_that_succeeded() -> None:
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
async def test_it_gives_up_after_its_attempts(attempts: int) -> None:
    backend = ScriptedSandbox(lambda _: SandboxError("gone"))
    with pytest.raises(SandboxError, match="gone"):
        await SandboxSession(backend, attempts=attempts).run(JOB)
    assert backend.acquired == backend.released == attempts


def places(number: int) -> SandboxGates:
    return SandboxGates(starting=asyncio.Semaphore(1), running=asyncio.Semaphore(number))


async def test_no_more_sandboxes_are_in_use_at_once_than_the_gates_let() -> None:
    backend, gates, in_use = ScriptedSandbox(lambda _: RunResult()), places(2), []

    async def use() -> None:
        session = SandboxSession(backend, gates)
        await session.run(JOB)
        await asyncio.sleep(0.01)  # a model is asked, say
        in_use.append(backend.acquired - backend.released)
        await session.renew()
        await asyncio.sleep(0)
        await session.run(JOB)
        await session.close()

    await asyncio.gather(*(use() for _ in range(5)))
    assert max(in_use) == 2
    assert backend.acquired == backend.released == 10


async def test_a_broken_sandbox_is_replaced_within_the_same_place() -> None:
    backend = ScriptedSandbox([SandboxError("gone"), RunResult(), RunResult()])
    gates = places(1)
    first, second = SandboxSession(backend, gates), SandboxSession(backend, gates)
    await first.run(JOB)
    waiting = asyncio.ensure_future(second.run(JOB))
    await asyncio.sleep(0)
    assert backend.acquired == 2
    await first.close()
    await waiting
    assert backend.acquired == 3


async def test_who_stops_waiting_for_a_place_takes_none() -> None:
    backend, gates = ScriptedSandbox(lambda _: RunResult()), places(1)
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


async def test_who_waits_for_the_same_run_does_not_keep_it_from_its_place() -> None:
    memo, gates = SharedExecutions(), places(1)
    backend = ScriptedSandbox(lambda job: RunResult(stdout=job.program))
    one, other = (SandboxSession(backend, gates, executions=memo) for _ in range(2))
    await one.run(SandboxJob("", "another program"))
    waiting = asyncio.ensure_future(other.run(JOB))
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await one.run(JOB)
        await one.close()
        assert (await waiting).shared


ENVIRONMENT = Environment("k", ("six",), ("six==1.0",))
WITHIN = SandboxJob("", "", environment="k")


async def test_an_environment_that_was_removed_is_built_again_once() -> None:
    backend = ScriptedSandbox([EnvironmentGone("gone"), RunResult(seconds=2)], environments=[ENVIRONMENT] * 2)
    session = SandboxSession(backend)
    await session.build_environment(["six"])
    assert (await session.run(WITHIN)).seconds == 2
    assert backend.requirements == [("six",), ("six",)]
    assert backend.acquired == 2


async def test_an_environment_that_goes_again_and_again_ends_the_run() -> None:
    backend = ScriptedSandbox(lambda _: EnvironmentGone("gone"), environments=[ENVIRONMENT] * 2)
    session = SandboxSession(backend)
    await session.build_environment(["six"])
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
    await session.build_environment(["six"])
    with pytest.raises(EnvironmentGone, match=reason):
        await session.run(WITHIN)


JOB = SandboxJob("harness", "program", ("test_a",), {"mode": "pytest"})


def counting() -> ScriptedSandbox:
    """Return a backend whose nth run takes n seconds."""
    numbers = iter(range(1, 100))
    return ScriptedSandbox(lambda _: RunResult(seconds=next(numbers)), commands=lambda _: CommandResult(0, ""))


async def run(
    backend: ScriptedSandbox, memo: SharedExecutions | None, job: SandboxJob = JOB, *, fresh: bool = False
) -> float:
    session = SandboxSession(backend, executions=memo)
    try:
        return (await session.run(job, fresh=fresh)).seconds
    finally:
        await session.close()


async def test_a_program_that_was_run_before_starts_no_sandbox_and_says_so() -> None:
    backend, memo = counting(), SharedExecutions()
    assert await run(backend, memo) == 1
    session = SandboxSession(backend, executions=memo)
    again = await session.run(JOB)
    assert (again.seconds, again.shared) == (1, True)
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
    ],
)
async def test_whatever_decides_the_result_makes_it_another_run(change: dict[str, object]) -> None:
    backend, memo = counting(), SharedExecutions()
    await run(backend, memo)
    assert await run(backend, memo, replace(JOB, **change)) == 2  # type: ignore[arg-type]


async def test_commands_that_succeeded_before_make_it_another_run() -> None:
    backend, memo = counting(), SharedExecutions()
    first, second = SandboxSession(backend, executions=memo), SandboxSession(backend, executions=memo)
    await first.run(JOB)
    await first.run_command(["mkdir", "data"], 5)
    assert (await first.run(JOB)).seconds == 2
    await second.run_command(["mkdir", "data"], 5)
    assert (await second.run(JOB)).seconds == 2


async def test_a_fresh_run_is_a_run_and_nobody_is_told_of_it() -> None:
    backend, memo = counting(), SharedExecutions()
    assert await run(backend, memo, fresh=True) == 1
    assert await run(backend, memo) == 2
    assert await run(backend, memo, fresh=True) == 3
    assert await run(backend, memo) == 2


async def test_an_error_is_shared_with_nobody() -> None:
    results = iter([SandboxError("gone"), RunResult(seconds=2)])
    backend, memo = ScriptedSandbox(lambda _: next(results)), SharedExecutions()
    with pytest.raises(SandboxError):
        await SandboxSession(backend, attempts=1, executions=memo).run(JOB)
    assert await run(backend, memo) == 2


class Gated:
    """Runs that wait for a word."""

    def __init__(self) -> None:
        self.started: asyncio.Queue[None] = asyncio.Queue()
        self.go = asyncio.Event()
        self.backend = ScriptedSandbox(self._run)

    async def _run(self, _: SandboxJob) -> RunResult:
        self.started.put_nowait(None)
        await self.go.wait()
        return RunResult(seconds=len(self.backend.jobs))


async def test_the_same_run_in_progress_serves_all_who_want_it() -> None:
    gated, memo = Gated(), SharedExecutions()
    waiting = [asyncio.ensure_future(run(gated.backend, memo)) for _ in range(3)]
    await gated.started.get()
    gated.go.set()
    assert await asyncio.gather(*waiting) == [1, 1, 1]


async def test_when_the_one_who_runs_it_leaves_the_next_one_runs_it_in_a_sandbox_of_its_own() -> None:
    gated, memo = Gated(), SharedExecutions()
    first = asyncio.ensure_future(run(gated.backend, memo))
    await gated.started.get()
    second = asyncio.ensure_future(run(gated.backend, memo))
    await asyncio.sleep(0)
    first.cancel()
    await gated.started.get()
    gated.go.set()
    assert await second == 2
    assert first.cancelled()
    assert gated.backend.acquired == gated.backend.released == 2
