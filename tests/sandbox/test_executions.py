"""The same program under the same circumstances is run once; whatever decides its result tells runs apart."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agent.errors import SandboxError
from agent.sandbox.base import CommandResult, Job, RunResult
from agent.sandbox.scripted import ScriptedSandbox
from agent.sandbox.session import SandboxSession, SharedExecutions

JOB = Job("harness", "program", ("test_a",), {"mode": "pytest"})


def counting() -> ScriptedSandbox:
    """Return a backend whose nth run takes n seconds."""
    numbers = iter(range(1, 100))
    return ScriptedSandbox(lambda _: RunResult(seconds=next(numbers)), commands=lambda _: CommandResult(0, ""))


async def run(backend: ScriptedSandbox, memo: SharedExecutions | None, job: Job = JOB, *, fresh: bool = False) -> float:
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


async def test_without_a_memo_every_program_is_run() -> None:
    backend = counting()
    assert [await run(backend, None), await run(backend, None)] == [1, 2]


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


async def test_another_backend_is_another_run() -> None:
    memo, other = SharedExecutions(), counting()
    await run(counting(), memo)
    await run(other, memo)
    assert len(other.jobs) == 1


async def test_commands_that_succeeded_before_make_it_another_run() -> None:
    backend, memo = counting(), SharedExecutions()
    first, second = SandboxSession(backend, executions=memo), SandboxSession(backend, executions=memo)
    await first.run(JOB)
    await first.command(["mkdir", "data"], 5)
    assert (await first.run(JOB)).seconds == 2
    await second.command(["mkdir", "data"], 5)
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


async def test_a_run_that_hit_its_time_limit_is_shared() -> None:
    backend, memo = ScriptedSandbox([RunResult(timed_out=True)]), SharedExecutions()
    await run(backend, memo)
    assert (await SandboxSession(backend, executions=memo).run(JOB)).timed_out


class Gated:
    """Runs that wait for a word."""

    def __init__(self) -> None:
        self.started: asyncio.Queue[None] = asyncio.Queue()
        self.go = asyncio.Event()
        self.backend = ScriptedSandbox(self._run)

    async def _run(self, _: Job) -> RunResult:
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
