"""A sandbox that returns scripted results, for tests and for trying out nodes without running programs."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from agent.errors import SandboxError
from agent.sandbox.base import (
    SENTINEL,
    CommandResult,
    Environment,
    EnvironmentBuilder,
    ReportLine,
    RunResult,
    Sandbox,
    SandboxBackend,
    SandboxJob,
)

Request = TypeVar("Request")
Result = TypeVar("Result")
Script = Sequence[Result | BaseException] | Callable[[Request], Result | BaseException | Awaitable[Result]]


class ScriptExhausted(SandboxError, AssertionError):
    """The sandbox received more requests than its script has results."""


class ScriptedSandbox(SandboxBackend):
    """A backend whose sandboxes return scripted results and record the requests.

    Args:
        runs: the results of `run` in order, or a function that takes the `SandboxJob` and may be async. A result is a
            `RunResult` or an exception to raise.
        commands: the `CommandResult`s that `run_command` returns, or a function that takes the command's words.
            Exceptions and async functions are allowed here as well.
        environments: the `Environment`s that `build` returns, or a function that takes the requirements. Exceptions and
            async functions are allowed here as well.
        index: a function that returns the requirement for an import name. It is called for names that the built-in
            table of import names does not contain.
        sentinels: the results of sentinel runs, which check that a passed program ran the snippet. By default, every
            sentinel run reports that the snippet ran.

    `jobs`, `commands` and `requirements` contain the requests. `acquired` and `released` count sandboxes.
    """

    name = "scripted"

    def __init__(
        self,
        runs: Script[RunResult, SandboxJob] = (),
        *,
        commands: Script[CommandResult, tuple[str, ...]] = (),
        environments: Script[Environment, tuple[str, ...]] = (),
        index: Callable[[str], str | None] = lambda _name: None,
        sentinels: Script[RunResult, SandboxJob] | None = None,
    ) -> None:
        self._runs = _ScriptPlayer(runs, "run")
        self._sentinels = _ScriptPlayer(_report_snippet_entered if sentinels is None else sentinels, "sentinel run")
        self._commands = _ScriptPlayer(commands, "command")
        self._environments = _ScriptPlayer(environments, "environment")
        self.environments: EnvironmentBuilder = _ScriptedEnvironments(self._environments, index)
        self.acquired = 0
        self.released = 0

    @property
    def jobs(self) -> list[SandboxJob]:
        """The jobs of all `run` requests except sentinel runs, in order."""
        return self._runs.requests

    @property
    def commands(self) -> list[tuple[str, ...]]:
        """The commands of all `run_command` requests, in order."""
        return self._commands.requests

    @property
    def requirements(self) -> list[tuple[str, ...]]:
        """The requirements of all `build` requests, in order."""
        return self._environments.requests

    async def acquire(self) -> _ScriptedSandbox:
        """Return a sandbox that continues the script."""
        self.acquired += 1
        return _ScriptedSandbox(self)


def _report_snippet_entered(job: SandboxJob) -> RunResult:
    records = [(ReportLine("start", name), ReportLine("case", name, "error", "SnippetEntered")) for name in job.cases]
    return RunResult((*(record for pair in records for record in pair), ReportLine("end")))


class _ScriptPlayer(Generic[Result, Request]):
    def __init__(self, script: Script[Result, Request], kind: str) -> None:
        self._function = script if callable(script) else None
        self._remaining = [] if callable(script) else list(script)
        self._kind = kind
        self.requests: list[Request] = []

    async def respond(self, request: Request) -> Result:
        """Return the next result, or raise it if it is an exception."""
        self.requests.append(request)
        if self._function is not None:
            value = self._function(request)
            result = await value if inspect.isawaitable(value) else value
        elif self._remaining:
            result = self._remaining.pop(0)
        else:
            raise ScriptExhausted(f"the script has no result for {self._kind} {len(self.requests)}: {request!r:.500}")
        if isinstance(result, BaseException):
            raise result
        return result


class _ScriptedEnvironments(EnvironmentBuilder):
    def __init__(self, script: _ScriptPlayer[Environment, tuple[str, ...]], index: Callable[[str], str | None]) -> None:
        self._script = script
        self._index = index

    async def build(self, requirements: Sequence[str]) -> Environment:
        return await self._script.respond(tuple(requirements))

    async def find_requirement(self, import_name: str) -> str | None:
        return self._index(import_name)


class _ScriptedSandbox(Sandbox):
    def __init__(self, backend: ScriptedSandbox) -> None:
        self._backend = backend
        self._released = False

    async def run(self, job: SandboxJob) -> RunResult:
        self._check_not_released()
        return await (self._backend._sentinels if SENTINEL in job.options else self._backend._runs).respond(job)

    async def run_command(self, argv: Sequence[str], timeout: float) -> CommandResult:  # noqa: ARG002
        self._check_not_released()
        return await self._backend._commands.respond(tuple(argv))

    async def release(self) -> None:
        if not self._released:
            self._released = True
            self._backend.released += 1

    def _check_not_released(self) -> None:
        if self._released:
            raise SandboxError("the scripted sandbox was released")
