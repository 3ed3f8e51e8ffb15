"""Replays recorded executions in fresh sandboxes with the recorded packages, and compares the outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from agent.config import Config
from agent.errors import DependencyUnavailable, LockUnavailable, NotReplayable, PairError, UnsupportedLanguage
from agent.evaluation.recorded import Difference, RecordedExecution, RecordedSandbox, compare_reports, read_execution
from agent.languages.base import MalformedProgram, Program
from agent.languages.registry import Languages
from agent.runs.store.annotations import Key
from agent.runs.store.run_view import RunView
from agent.sandbox.base import Environment, SandboxBackend
from agent.sandbox.session import SandboxGates, SandboxSession
from agent.streams import run_concurrently
from agent.types import ErrorInfo, TestReport

_REPEATS = 2


@dataclass(frozen=True)
class ReplayResult:
    """A replayed execution and its differences from the recorded execution.

    If there are no differences, `cause` is None. Otherwise, `cause` is `flaky` if the outcome varied between replays,
    and `changed` if it did not vary. `seconds` is the duration of the replayed execution.
    """

    id: str
    round: int
    recorded: TestReport
    report: TestReport
    differences: tuple[Difference, ...] = ()
    cause: Literal["flaky", "changed"] | None = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class ReplayFailure:
    """An execution that could not be replayed, and the error. A failed replay does not count as a difference."""

    id: str
    round: int
    error: ErrorInfo


class Replayer:
    """Replays programs from a run. Safe for concurrent calls in one event loop.

    Each program runs in a fresh sandbox, after the commands that were recorded for it. Files from earlier executions
    are deliberately missing, because an outcome that depends on them is not reproducible.

    Args:
        view: The run.
        backend: A started backend, which the caller closes. It should be one of `select.LOCKED_BACKENDS`.
        sandbox: The recorded sandbox of the executions to replay (see `group_by_sandbox`).
        config: Settings that provide the timeouts. Defaults to the recorded settings.
        concurrency: Maximum number of concurrent executions.
    """

    def __init__(
        self,
        view: RunView,
        backend: SandboxBackend,
        sandbox: RecordedSandbox,
        *,
        config: Config | None = None,
        concurrency: int = 4,
    ) -> None:
        config = config or sandbox.config
        self._view = view
        self._backend = backend
        self._pipeline = config.pipeline
        self._languages = Languages()
        self._concurrency = concurrency
        self._gates = SandboxGates(asyncio.Semaphore(config.sandbox.starts), asyncio.Semaphore(concurrency))
        self._same_interpreter = sandbox.has_same_interpreter(backend)
        self.notes = tuple(sandbox.list_notes(config, backend))

    async def replay(self, pair_id: str, round: int = 0) -> ReplayResult:
        """Replay the last execution of a pair and compare the outcomes.

        Programs whose outcome differs are executed again, to detect flaky programs.

        Raises:
            NotReplayable: no program was executed, or its record is incomplete.
            LockUnavailable: the recorded package versions are not available.
            UnsupportedLanguage: the language of the pair is not supported.
            ConfigError: the language's package is not usable.
            ExtraMissing: a library of the language is not installed.
            SandboxError: the sandbox failed.
        """
        recorded = read_execution(self._view, pair_id, round)
        if recorded is None:
            raise NotReplayable(f"pair {pair_id!r}: no program was executed")
        environment, notes = await self._acquire_environment(recorded)
        key = None if environment is None else environment.key
        try:
            result = await self._run_program(recorded, key)
            differences = compare_reports(recorded.execution.report, result.report)
            cause: Literal["flaky", "changed"] | None = None
            if differences:
                cause = "flaky" if await self._is_flaky(recorded, key, result.report) else "changed"
        finally:
            if key is not None:
                self._backend.environments.release(key)
        return replace(result, differences=differences, cause=cause, notes=(*notes, *result.notes))

    async def run_variants(self, recorded: RecordedExecution, programs: Sequence[Program]) -> list[TestReport]:
        """Run other programs under the conditions of a recorded execution, each in a fresh sandbox.

        Raises:
            NotReplayable, LockUnavailable, UnsupportedLanguage, SandboxError: see `replay`.
        """
        environment, _ = await self._acquire_environment(recorded)
        key = None if environment is None else environment.key
        try:
            return [(await self._run_program(replace(recorded, program=own), key)).report for own in programs]
        finally:
            if key is not None:
                self._backend.environments.release(key)

    def replay_all(self, keys: Sequence[Key]) -> AsyncGenerator[ReplayResult | ReplayFailure, None]:
        """Replay the last execution for each pair and round in `keys`. Yield results in completion order.

        Closing the generator stops the sandboxes.

        Raises:
            RunFolderError: the run's evidence is damaged.
        """
        return run_concurrently(keys, self._replay_or_fail, concurrency=self._concurrency)

    async def _replay_or_fail(self, key: Key) -> ReplayResult | ReplayFailure:
        try:
            return await self.replay(*key)
        except (NotReplayable, PairError) as error:
            return ReplayFailure(*key, ErrorInfo(type=type(error).__name__, message=str(error)))

    async def _acquire_environment(self, recorded: RecordedExecution) -> tuple[Environment | None, list[str]]:
        """Acquire an environment with the program's packages. Return the environment and notes.

        The caller must release the environment.
        """
        key, lock = recorded.execution.environment, recorded.execution.installed
        if key is None:
            return None, []
        builder = self._backend.environments
        cached = await builder.find_cached(key) if self._same_interpreter else None
        if cached is not None and cached.installed == lock:
            return cached, []
        if cached is not None:
            builder.release(cached.key)
        try:
            built = await builder.build(lock)
        except DependencyUnavailable as error:
            raise LockUnavailable(
                f"pair {recorded.pair.id!r}: packages are no longer available ({', '.join(lock)}): {error}"
            ) from error
        if built.installed != lock:
            builder.release(built.key)
            missing = ", ".join(sorted({*lock} - {*built.installed})) or "none"
            additional = ", ".join(sorted({*built.installed} - {*lock})) or "none"
            raise LockUnavailable(
                f"pair {recorded.pair.id!r}: the installed packages differ from the recorded lock (missing: {missing}; "
                f"additional: {additional})"
            )
        notes = ["the packages have the recorded versions but different files"] if built.key != key else []
        return built, notes if self._same_interpreter else []

    async def _is_flaky(self, recorded: RecordedExecution, environment: str | None, report: TestReport) -> bool:
        for _ in range(_REPEATS):
            if compare_reports(report, (await self._run_program(recorded, environment)).report):
                return True
        return False

    async def _run_program(self, recorded: RecordedExecution, environment: str | None) -> ReplayResult:
        """Run the program once, after the recorded commands, without comparing outcomes."""
        pair = recorded.pair
        language = self._languages.get(pair.language)
        if language is None:
            raise UnsupportedLanguage(f"pair {pair.id!r}: language {pair.language!r} is not supported")
        if language.toolchain is not None:
            await self._backend.require_toolchain(language.toolchain)
        language.check_support()
        session = SandboxSession(self._backend, self._gates, attempts=self._pipeline.sandbox_attempts)
        notes = []
        try:
            for argv in recorded.commands:
                command = await session.run_command(argv, self._pipeline.command_timeout)
                if command.exit_code != 0:
                    output = command.output.strip()[-200:]
                    notes.append(f"a recorded command now fails: {' '.join(argv)}: {output}")
            job = language.job(recorded.program, environment=environment, timeout=self._pipeline.test_timeout)
            result = await session.run(job)
        finally:
            await session.close()
        try:
            report = language.report(recorded.program, result)
        except MalformedProgram as error:
            raise NotReplayable(f"pair {pair.id!r}: the recorded program is malformed: {error}") from error
        return ReplayResult(
            id=pair.id,
            round=recorded.round,
            recorded=recorded.execution.report,
            report=report,
            notes=tuple(notes),
            seconds=result.seconds,
        )
