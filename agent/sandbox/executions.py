"""Results of programs that were run before, for whoever runs the same ones again.

What decides a result: the backend (its limits, image and interpreter are its own), the job (program, harness, options,
environment, time limit), and the commands that succeeded in the pair's sandbox before. Files that earlier programs left
there are not counted: a sandbox that takes the place of a broken one lacks them too.

Errors are never shared: whoever waited for a run that broke runs it anew. A run that hit its time limit is a result
like any other: variants are compared on the same evidence, and what hangs would hang again, at the full price.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from agent.sandbox.base import Job, RunResult, SandboxBackend


@dataclass(frozen=True)
class Circumstances:
    """What decides the result of a run; two runs under equal ones are the same run."""

    backend: SandboxBackend
    job: tuple[Hashable, ...]
    commands: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, backend: SandboxBackend, job: Job, commands: Sequence[tuple[str, ...]]) -> Circumstances:
        """Return the circumstances of running a job on a backend after these commands."""
        decisive = (
            job.harness,
            job.program,
            job.cases,
            tuple(sorted(job.options.items())),
            job.environment,
            job.timeout,
        )
        return cls(backend, decisive, tuple(commands))

    def __hash__(self) -> int:
        # a backend is itself, whatever it says of equality
        return hash((id(self.backend), self.job, self.commands))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Circumstances):
            return NotImplemented
        return self.backend is other.backend and (self.job, self.commands) == (other.job, other.commands)


@runtime_checkable
class ExecutionMemo(Protocol):
    """Knows the results of runs."""

    async def run(self, circumstances: Circumstances, work: Callable[[], Awaitable[RunResult]]) -> RunResult:
        """Return the known result, with `shared` set, or that of `work`, whose errors are the caller's alone."""
        ...


class SharedExecutions:
    """Keeps results in memory, and lets the same run in progress serve all who want it; for one event loop."""

    def __init__(self) -> None:
        self._results: dict[Circumstances, RunResult] = {}
        self._running: dict[Circumstances, asyncio.Event] = {}

    async def run(self, circumstances: Circumstances, work: Callable[[], Awaitable[RunResult]]) -> RunResult:
        """Return the known result, that of the same run in progress, or that of `work`.

        The work is done in the caller's own task and sandbox: when it fails or is cancelled, the next one who waits
        does its own.
        """
        while (known := self._results.get(circumstances)) is None:
            running = self._running.get(circumstances)
            if running is None:
                return await self._lead(circumstances, work)
            await running.wait()
        return replace(known, shared=True)

    async def _lead(self, circumstances: Circumstances, work: Callable[[], Awaitable[RunResult]]) -> RunResult:
        ended = self._running[circumstances] = asyncio.Event()
        try:
            self._results[circumstances] = result = await work()
            return result
        finally:
            del self._running[circumstances]
            ended.set()
