"""A sandbox that answers from a script: for tests, and for trying out nodes without running anything."""

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

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
Script = Sequence[Answer | BaseException] | Callable[[Asked], Answer | BaseException | Awaitable[Answer]]


class ScriptExhausted(SandboxError, AssertionError):
    """The script has no answer left: more was asked of the sandbox than the script foresaw."""


class ScriptedSandbox(SandboxBackend):
    """A backend whose sandboxes answer from a script and keep what they were asked.

    Args:
        runs: answers to `run` in the order asked, or a function of the `SandboxJob`. An answer is a `RunResult` or an
            exception to raise; a function may be async.
        commands: the same for `command`, by `CommandResult`; a function is given the words of the command.
        environments: the same for environments, by `Environment`; a function is given the requirements.
        index: gives the requirement for an import name that no map has.
        sentinels: answers to the runs that look whether a passed program ran the snippet; by default it did.

    `jobs`, `commands` and `requirements` list what was asked; `acquired` and `released` count sandboxes.
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
        self._runs = _Answers(runs, "run")
        self._sentinels = _Answers(_all_raised if sentinels is None else sentinels, "sentinel run")
        self._commands = _Answers(commands, "command")
        self._environments = _Answers(environments, "environment")
        self.environments: EnvironmentBuilder = _ScriptedEnvironments(self._environments, index)
        self.acquired = 0
        self.released = 0

    @property
    def jobs(self) -> list[SandboxJob]:
        """The jobs that were run, in order."""
        return self._runs.asked

    @property
    def commands(self) -> list[tuple[str, ...]]:
        """The commands that were run, in order."""
        return self._commands.asked

    @property
    def requirements(self) -> list[tuple[str, ...]]:
        """The requirements that environments were asked for, in order."""
        return self._environments.asked

    async def acquire(self) -> _ScriptedSandbox:
        """Give a sandbox that goes on with the script."""
        self.acquired += 1
        return _ScriptedSandbox(self)


def _all_raised(job: SandboxJob) -> RunResult:
    records = [(ReportLine("start", name), ReportLine("case", name, "error", "SnippetEntered")) for name in job.cases]
    return RunResult((*(record for pair in records for record in pair), ReportLine("end")))


class _Answers(Generic[Answer, Asked]):
    """Answers in the order asked, or by function; keeps what was asked."""

    def __init__(self, script: Script[Answer, Asked], what: str) -> None:
        self._by_function = script if callable(script) else None
        self._left = [] if callable(script) else list(script)
        self._what = what
        self.asked: list[Asked] = []

    async def to(self, asked: Asked) -> Answer:
        """Give the next answer, or raise it."""
        self.asked.append(asked)
        if self._by_function is not None:
            given = self._by_function(asked)
            answer = await given if inspect.isawaitable(given) else given
        elif self._left:
            answer = self._left.pop(0)
        else:
            raise ScriptExhausted(f"the script has no answer left for {self._what} {len(self.asked)}: {asked!r:.500}")
        if isinstance(answer, BaseException):
            raise answer
        return answer


class _ScriptedEnvironments(EnvironmentBuilder):
    def __init__(self, answers: _Answers[Environment, tuple[str, ...]], index: Callable[[str], str | None]) -> None:
        self._answers = answers
        self._index = index

    async def build(self, requirements: Sequence[str]) -> Environment:
        """Give the script's next environment."""
        return await self._answers.to(tuple(requirements))

    async def find_requirement(self, import_name: str) -> str | None:
        """Ask the script's index."""
        return self._index(import_name)


class _ScriptedSandbox(Sandbox):
    def __init__(self, backend: ScriptedSandbox) -> None:
        self._backend = backend
        self._released = False

    async def run(self, job: SandboxJob) -> RunResult:
        """Give the script's next result."""
        self._check()
        return await (self._backend._sentinels if SENTINEL in job.options else self._backend._runs).to(job)

    async def run_command(self, argv: Sequence[str], timeout: float) -> CommandResult:  # noqa: ARG002
        """Give the script's next command result."""
        self._check()
        return await self._backend._commands.to(tuple(argv))

    async def release(self) -> None:
        """Count the release, once."""
        if not self._released:
            self._released = True
            self._backend.released += 1

    def _check(self) -> None:
        if self._released:
            raise SandboxError("this scripted sandbox was released already")
