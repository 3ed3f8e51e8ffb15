"""Manages one pair's sandbox, which is acquired on first use, replaced if it fails, and released at the end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from agent.errors import AgentError, DependencyUnavailable, EnvironmentGone, RequirementsUnavailable, SandboxError
from agent.sandbox.base import (
    Checkout,
    CommandResult,
    Environment,
    RunResult,
    Sandbox,
    SandboxBackend,
    SandboxJob,
)
from agent.text import make_printable
from agent.tracing import UNTRACED, Record, Tracer
from agent.types import Origin

T = TypeVar("T")
_log = logging.getLogger(__name__)
_MAX_REQUIREMENTS = 100
_NOT_STARTED = 70
"""The exit code of a process that could not start the harness."""


@dataclass(frozen=True)
class SandboxGates:
    """Limits shared by all pairs of a run.

    `starting` limits how many sandboxes start at once. `running` limits how many sessions use a sandbox at once.
    """

    starting: asyncio.Semaphore
    running: asyncio.Semaphore


class Results(Protocol):
    """Stores the results of programs."""

    def get(self, key: Hashable) -> RunResult | None:
        """Return the result with this key, or None."""

    def __setitem__(self, key: Hashable, result: RunResult) -> None: ...


class SharedExecutions:
    """Reuses the results of identical programs. Use it from one event loop.

    A result's key consists of the backend, the job, and the commands that have succeeded in the pair's sandbox. Files
    that earlier programs wrote are not part of the key, because they are also missing after a failed sandbox is
    replaced. Timeouts are shared in the same way as other results, because the program would time out again. Errors are
    never shared.
    `results` defaults to a new dict.
    """

    def __init__(self, results: Results | None = None) -> None:
        self._results: Results = dict[Hashable, RunResult]() if results is None else results
        self._in_progress: dict[Hashable, asyncio.Event] = {}
        self._backends: dict[int, SandboxBackend] = {}

    async def run(
        self,
        backend: SandboxBackend,
        job: SandboxJob,
        commands: Sequence[tuple[str, ...]],
        work: Callable[[], Awaitable[RunResult]],
    ) -> RunResult:
        """Return the result of an identical run, marked as `shared`. If there is none, return the result of `work`.

        If an identical run is in progress, wait until it ends. `work` runs in the caller's task and sandbox. If `work`
        fails or is cancelled, the next waiter runs its own `work`.
        """
        self._backends[id(backend)] = backend  # keeps the backend alive, because ids of deleted objects are reused
        inputs = job.harness, job.program, job.cases, tuple(sorted(job.options.items())), job.environment, job.timeout
        key = id(backend), inputs, job.argv, tuple(commands)
        while (result := self._results.get(key)) is None:
            running = self._in_progress.get(key)
            if running is None:
                return await self._run_and_share(key, work)
            await running.wait()
        return replace(result, shared=True)

    async def _run_and_share(self, key: Hashable, work: Callable[[], Awaitable[RunResult]]) -> RunResult:
        finished = self._in_progress[key] = asyncio.Event()
        try:
            self._results[key] = result = await work()
            return result
        finally:
            del self._in_progress[key]
            finished.set()


class SandboxSession:
    """Runs one pair's programs and commands in one sandbox until `renew` is called.

    A failed sandbox is replaced. Each request uses at most `attempts` sandboxes. In a new sandbox, the session repeats
    the commands that succeeded earlier, so that programs find the same files. If a program's environment was removed
    from the store, each `run` call rebuilds it at most once. `requirements` belong to the pair and are part of all its
    environments. `executions` provides the results of identical programs. Without it, every program runs. If `forks`
    is true, programs that run in their snippet's module run in forks of one process, where this cannot affect results.

    From its first request until `renew` or `close` is called, a session occupies one slot of the `running` gate. It
    acquires the slot before it waits for an identical run. A session that others wait for therefore has a slot, which
    prevents deadlocks.
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
        forks: bool = False,
    ) -> None:
        self._backend = backend
        self._gates = gates
        self._attempts = attempts
        self._requirements = tuple(requirements)
        self._executions = executions
        self._tracer = tracer
        self.forks = forks
        self._was_forked = False
        self._sandbox: Sandbox | None = None
        self._has_slot = False
        self._succeeded_commands: list[tuple[tuple[str, ...], float]] = []
        self._environments: dict[str, tuple[str, ...]] = {}

    async def run(self, job: SandboxJob) -> RunResult:
        """Run a program. If an identical run has a result, return that result instead, marked as `shared`.

        Raises:
            SandboxError: every sandbox failed.
        """
        with self._tracer.span("sandbox", "sandbox run", backend=self._backend.name) as record:
            await self._acquire_slot(record)
            if self._executions is None:
                result = await self._run(job)
            else:
                commands = [argv for argv, _ in self._succeeded_commands]
                result = await self._executions.run(self._backend, job, commands, lambda: self._run(job))
            status = "timeout" if result.timed_out else result.limit or ("clean" if result.clean else "failed")
            record(status=status, seconds=result.seconds, shared=result.shared)
            return result

    async def _run(self, job: SandboxJob) -> RunResult:
        self._was_forked = False
        if self.forks and job.options.get("module") and not job.options.get("probe"):
            result = await self._try_fork(replace(job, fork=True))
            if result is not None:
                return result
        try:
            return await self._try_sandboxes(lambda sandbox: sandbox.run(job))
        except EnvironmentGone as error:
            await self._rebuild(job.environment, error)
            return await self._try_sandboxes(lambda sandbox: sandbox.run(job))

    async def _try_fork(self, job: SandboxJob) -> RunResult | None:
        """Run a job with `fork`. Returns None, without a sandbox, if the job must run in a fresh process."""
        try:
            with self._translate_errors():
                result = await (self._sandbox or await self._start_sandbox()).run(job)
        except SandboxError as error:
            _log.info("no forks for this pair: %s", make_printable(str(error)))
            self.forks = False
        else:
            # forks share the limit on memory with the process that they were forked from
            if result.limit != "memory" and result.exit_code != _NOT_STARTED:
                self._was_forked = result.forked
                return result
        await self._release_sandbox()
        return None

    async def run_command(self, argv: Sequence[str], timeout: float) -> CommandResult:
        """Run a command in the pair's sandbox.

        Raises:
            SandboxError: every sandbox failed.
        """
        self._was_forked = False
        with self._tracer.span("sandbox", "sandbox command", backend=self._backend.name) as record:
            await self._acquire_slot(record)
            result = await self._try_sandboxes(lambda sandbox: sandbox.run_command(argv, timeout))
            record(status="timeout" if result.timed_out else "clean" if result.exit_code == 0 else "failed")
        if result.exit_code == 0:
            self._succeeded_commands.append((tuple(argv), timeout))
        return result

    async def renew(self) -> None:
        """Release the sandbox. The next request starts a fresh sandbox without the files of earlier programs."""
        await asyncio.shield(self._release_sandbox_and_slot())

    async def refresh(self) -> None:
        """Release the sandbox, unless the next program can be forked in it under the same conditions.

        Call `renew` before a model call. This method may keep the session's slot.
        """
        if not self._was_forked:
            await self.renew()

    async def build_environment(self, requirements: Sequence[str]) -> Environment:
        """Return the environment for these requirements, building it if needed.

        The store keeps the environment until `close` is called.

        Raises:
            DependencyUnavailable: the requirements cannot be installed.
            RequirementsUnavailable: the pair has too many requirements.
            SandboxError: the builder failed.
        """
        if len(self._requirements) > _MAX_REQUIREMENTS:
            raise RequirementsUnavailable(
                f"{len(self._requirements)} requirements exceed the limit of {_MAX_REQUIREMENTS}"
            )
        start = time.monotonic()
        with self._tracer.span("sandbox", "sandbox environment", backend=self._backend.name), self._translate_errors():
            environment = await self._backend.environments.build([*self._requirements, *requirements])
        _log.info(
            "environment with %s ready in %.2f s",
            ", ".join(environment.installed) or "no packages",
            time.monotonic() - start,
        )
        if environment.key in self._environments:
            self._backend.environments.release(environment.key)
        self._environments[environment.key] = tuple(requirements)
        return environment

    async def build_initial_environment(self) -> Environment | None:
        """Return the environment with the requirements of the run and the pair, or None if neither has any.

        Raises:
            RequirementsUnavailable: the requirements cannot be installed, or the pair has too many requirements.
            SandboxError: the builder failed.
        """
        if not self._requirements and not self._backend.environments.base_requirements:
            return None
        try:
            return await self.build_environment(())
        except DependencyUnavailable as error:
            raise RequirementsUnavailable(f"the pair's requirements cannot be installed: {error}") from error

    async def find_requirement(self, import_name: str) -> str | None:
        """Return the requirement that provides an import name, or None if there is none.

        This method is for import names that the built-in table of import names does not contain.

        Raises:
            DependencyUnavailable: the distribution is refused, or the package index does not respond.
            SandboxError: the builder failed.
        """
        with self._translate_errors():
            return await self._backend.environments.find_requirement(import_name)

    async def find_checkout(self, origin: Origin) -> Checkout | None:
        """Return the module of a function in the user's git clones. See `EnvironmentBuilder.find_checkout`.

        Raises:
            DependencyUnavailable: the clones do not contain the repository, the commit or the module.
            SandboxError: the clones cannot be read.
        """
        with self._translate_errors():
            return await self._backend.environments.find_checkout(origin)

    async def close(self) -> None:
        """Release the sandbox and the environments."""
        try:
            await self.renew()
        finally:
            while self._environments:
                self._backend.environments.release(self._environments.popitem()[0])

    async def _acquire_slot(self, record: Record) -> None:
        if self._gates is not None and not self._has_slot:
            start = time.monotonic()
            await self._gates.running.acquire()
            self._has_slot = True
            record(waited=time.monotonic() - start)

    async def _release_sandbox_and_slot(self) -> None:
        had_slot, self._has_slot = self._has_slot, False
        try:
            await self._release_sandbox()
        finally:
            if self._gates is not None and had_slot:
                self._gates.running.release()

    async def _release_sandbox(self) -> None:
        sandbox, self._sandbox, self._was_forked = self._sandbox, None, False
        if sandbox is not None:
            with self._translate_errors():
                await asyncio.shield(sandbox.release())

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Convert system errors, and any error of a user-defined backend, to a `SandboxError`."""
        try:
            yield
        except AgentError:
            raise
        except Exception as error:
            if not isinstance(error, OSError) and type(self._backend).__module__.startswith("agent."):
                raise
            raise SandboxError(f"the {self._backend.name} sandbox raised {type(error).__name__}: {error}") from error

    async def _try_sandboxes(self, act: Callable[[Sandbox], Awaitable[T]]) -> T:
        for attempt in range(1, self._attempts + 1):
            try:
                with self._translate_errors():
                    return await act(self._sandbox or await self._start_sandbox())
            except EnvironmentGone:
                await self._release_sandbox()
                raise
            except SandboxError:
                await self._release_sandbox()
                if attempt == self._attempts:
                    raise
        raise AssertionError("attempts must be at least 1")

    async def _rebuild(self, key: str | None, removal: EnvironmentGone) -> None:
        """Rebuild a removed environment. Results are comparable only if the versions are the same.

        Raises:
            EnvironmentGone: the environment cannot be rebuilt, or its requirements now resolve to other versions.
            SandboxError: the builder failed.
        """
        if key not in self._environments:
            raise removal
        self._backend.environments.forget(key)
        try:
            environment = await self.build_environment(self._environments[key])
        except DependencyUnavailable as error:
            raise EnvironmentGone(f"{removal} and cannot be rebuilt: {error}") from error
        if environment.key != key:
            raise EnvironmentGone(f"{removal}, and its requirements now resolve to other versions")

    async def _start_sandbox(self) -> Sandbox:
        start = time.monotonic()
        async with self._gates.starting if self._gates else nullcontext():
            self._sandbox = await self._backend.acquire()
        _log.info("%s sandbox started in %.3f s", self._backend.name, time.monotonic() - start)
        for argv, timeout in self._succeeded_commands:
            await self._sandbox.run_command(argv, timeout)
        return self._sandbox
