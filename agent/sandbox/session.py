"""One pair's sandbox: acquired on first need, replaced when it breaks, released when the pair ends."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from agent.errors import DependencyUnavailable, EnvironmentGone, RequirementsUnavailable, SandboxError
from agent.sandbox.base import CommandResult, Environment, RunResult, Sandbox, SandboxBackend, SandboxJob
from agent.tracing import UNTRACED, Record, Tracer

T = TypeVar("T")
_log = logging.getLogger(__name__)
_MOST_OWN = 100


@dataclass(frozen=True)
class SandboxGates:
    """Limits shared by all pairs of a run: sandboxes starting at once, and sandboxes in pairs' hands at once."""

    starting: asyncio.Semaphore
    running: asyncio.Semaphore


class Results(Protocol):
    """Keeps results of programs."""

    def get(self, key: Hashable) -> RunResult | None:
        """Return the result under a key."""

    def __setitem__(self, key: Hashable, result: RunResult) -> None: ...


class SharedExecutions:
    """Reuses the results of programs that ran before. Used from one event loop.

    The key of a result is the backend, the job, and the commands that succeeded in the pair's sandbox before. Files of
    earlier programs are not part of the key: a sandbox that replaces a broken one lacks them too. Timeouts are shared
    like other results, because the program would time out again. Errors are never shared. `results` defaults to a dict.
    """

    def __init__(self, results: Results | None = None) -> None:
        self._results: Results = dict[Hashable, RunResult]() if results is None else results
        self._running: dict[Hashable, asyncio.Event] = {}
        self._backends: dict[int, SandboxBackend] = {}

    async def run(
        self,
        backend: SandboxBackend,
        job: SandboxJob,
        commands: Sequence[tuple[str, ...]],
        work: Callable[[], Awaitable[RunResult]],
    ) -> RunResult:
        """Return the known result, with `shared` set, that of the same run in progress, or that of `work`.

        `work` runs in the caller's task and sandbox. When it fails or is cancelled, the next waiter runs its own.
        """
        self._backends[id(backend)] = backend  # an id is another backend's once its owner is gone
        decisive = job.harness, job.program, job.cases, tuple(sorted(job.options.items())), job.environment, job.timeout
        key = id(backend), decisive, tuple(commands)
        while (known := self._results.get(key)) is None:
            running = self._running.get(key)
            if running is None:
                return await self._lead(key, work)
            await running.wait()
        return replace(known, shared=True)

    async def _lead(self, key: Hashable, work: Callable[[], Awaitable[RunResult]]) -> RunResult:
        ended = self._running[key] = asyncio.Event()
        try:
            self._results[key] = result = await work()
            return result
        finally:
            del self._running[key]
            ended.set()


class SandboxSession:
    """Gives a pair one sandbox until it is renewed. A broken sandbox is replaced, `attempts` sandboxes per request.

    A replacement repeats the commands that succeeded, so that a program finds the same files. An environment that was
    removed meanwhile is built again, once per run. `requirements` are the pair's own: they are part of all its
    environments. `executions` holds the results of earlier programs; without it every program runs.

    From its first request to `renew` or `close` a session holds one slot of the gate `running`. A session acquires its
    slot before it waits for an identical run, so waiters cannot deadlock the leader.
    """

    def __init__(
        self,
        backend: SandboxBackend,
        gates: SandboxGates | None = None,
        *,
        attempts: int = 3,
        requirements: Sequence[str] = (),
        executions: SharedExecutions | None = None,
        tracer: Tracer = UNTRACED,
    ) -> None:
        self._backend = backend
        self._gates = gates
        self._attempts = attempts
        self._own = tuple(requirements)
        self._executions = executions
        self._tracer = tracer
        self._sandbox: Sandbox | None = None
        self._placed = False
        self._replay: list[tuple[tuple[str, ...], float]] = []
        self._environments: dict[str, tuple[str, ...]] = {}

    async def run(self, job: SandboxJob, *, fresh: bool = False) -> RunResult:
        """Run a program, or return the result of an identical earlier run (`shared`).

        `fresh` always runs the program and does not share the result, to check whether it ends the same way again.

        Raises:
            SandboxError: every sandbox tried broke.
        """
        with self._tracer.span("sandbox", "sandbox run", backend=self._backend.name) as record:
            await self._take_place(record)
            if self._executions is None or fresh:
                result = await self._run(job)
            else:
                commands = [argv for argv, _ in self._replay]
                result = await self._executions.run(self._backend, job, commands, lambda: self._run(job))
            status = "timeout" if result.timed_out else result.limit or ("clean" if result.clean else "failed")
            record(status=status, seconds=result.seconds, shared=result.shared)
            return result

    async def _run(self, job: SandboxJob) -> RunResult:
        try:
            return await self._attempt(lambda sandbox: sandbox.run(job))
        except EnvironmentGone as error:
            await self._rebuild(job.environment, error)
            return await self._attempt(lambda sandbox: sandbox.run(job))

    async def run_command(self, argv: Sequence[str], timeout: float) -> CommandResult:
        """Run a command in the pair's sandbox.

        Raises:
            SandboxError: every sandbox tried broke.
        """
        with self._tracer.span("sandbox", "sandbox command", backend=self._backend.name) as record:
            await self._take_place(record)
            result = await self._attempt(lambda sandbox: sandbox.run_command(argv, timeout))
            record(status="timeout" if result.timed_out else "clean" if result.exit_code == 0 else "failed")
        if result.exit_code == 0:
            self._replay.append((tuple(argv), timeout))
        return result

    async def renew(self) -> None:
        """Release the sandbox: the next request begins in a fresh one, where no program has left files."""
        await asyncio.shield(self._leave())

    async def build_environment(self, requirements: Sequence[str]) -> Environment:
        """Build an environment, or find it built; it stays until the session is closed.

        Raises:
            DependencyUnavailable: it cannot be had.
            SandboxError: the builder broke.
        """
        started = time.monotonic()
        with self._tracer.span("sandbox", "sandbox environment", backend=self._backend.name):
            environment = await self._backend.environments.build([*self._own, *requirements])
        _log.info(
            "environment of %s in %.2f s",
            ", ".join(environment.installed) or "no packages",
            time.monotonic() - started,
        )
        if environment.key in self._environments:
            self._backend.environments.release(environment.key)
        self._environments[environment.key] = tuple(requirements)
        return environment

    async def build_initial_environment(self) -> Environment | None:
        """Return the environment of a program that asked for nothing yet; None where it needs none.

        Raises:
            RequirementsUnavailable: what run and pair ask for cannot be had.
            SandboxError: the builder broke.
        """
        if not self._own and not self._backend.environments.base_requirements:
            return None
        if len(self._own) > _MOST_OWN:
            raise RequirementsUnavailable(f"a pair may ask for {_MOST_OWN} requirements, and this asks for more")
        try:
            return await self.build_environment(())
        except DependencyUnavailable as error:
            raise RequirementsUnavailable(f"the pair's own requirements cannot be had: {error}") from error

    async def find_requirement(self, import_name: str) -> str | None:
        """Return the requirement that the package index has for a name that no map of imports has, or None.

        Raises:
            DependencyUnavailable: the index does not answer.
            SandboxError: the builder broke.
        """
        return await self._backend.environments.find_requirement(import_name)

    async def close(self) -> None:
        """Release the pair's sandbox, and the environments it asked for."""
        try:
            await self.renew()
        finally:
            while self._environments:
                self._backend.environments.release(self._environments.popitem()[0])

    async def _take_place(self, record: Record) -> None:
        if self._gates is not None and not self._placed:
            started = time.monotonic()
            await self._gates.running.acquire()
            self._placed = True
            record(waited=time.monotonic() - started)

    async def _leave(self) -> None:
        placed, self._placed = self._placed, False
        try:
            await self._drop()
        finally:
            if self._gates is not None and placed:
                self._gates.running.release()

    async def _drop(self) -> None:
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            await asyncio.shield(sandbox.release())

    async def _attempt(self, act: Callable[[Sandbox], Awaitable[T]]) -> T:
        for attempt in range(1, self._attempts + 1):
            try:
                return await act(self._sandbox or await self._fresh())
            except EnvironmentGone:
                await self._drop()
                raise
            except SandboxError:
                await self._drop()
                if attempt == self._attempts:
                    raise
        raise AssertionError("a session makes at least one attempt")

    async def _rebuild(self, key: str | None, gone: EnvironmentGone) -> None:
        """Build an environment again; what another one says of a program is not what was asked."""
        if key not in self._environments:
            raise gone
        self._backend.environments.forget(key)
        try:
            environment = await self.build_environment(self._environments[key])
        except DependencyUnavailable as error:
            raise EnvironmentGone(f"{gone}, and cannot be built again: {error}") from error
        if environment.key != key:
            raise EnvironmentGone(f"{gone}; the package index answers with other versions by now")

    async def _fresh(self) -> Sandbox:
        started = time.monotonic()
        async with self._gates.starting if self._gates else nullcontext():
            self._sandbox = await self._backend.acquire()
        _log.info("sandbox of %s started in %.3f s", self._backend.name, time.monotonic() - started)
        for argv, timeout in self._replay:
            await self._sandbox.run_command(argv, timeout)
        return self._sandbox
