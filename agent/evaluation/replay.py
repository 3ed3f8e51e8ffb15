"""Runs recorded executions again, each in a fresh sandbox with the packages it had, and counts what came of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Literal

from agent.config import Config
from agent.errors import (
    DependencyUnavailable,
    LockUnavailable,
    NotReplayable,
    PairError,
    UnsupportedLanguage,
)
from agent.evaluation.recorded import Difference, RecordedExecution, RecordedSandbox, compare_reports, read_execution
from agent.evaluation.statistics import wilson_interval
from agent.languages import built_in_languages
from agent.languages.base import MalformedProgram
from agent.sandbox.base import Environment, SandboxBackend
from agent.sandbox.select import LOCKED_BACKENDS, choose
from agent.sandbox.session import SandboxGates, SandboxSession
from agent.store.annotations import Key
from agent.store.run_view import RunView
from agent.streams import run_concurrently
from agent.types import ErrorInfo, TestReport


@dataclass(frozen=True)
class ReplayResult:
    """An execution that was run again, and what differs from what was recorded.

    `cause` is set where something differs: `flaky` when the program ends in different ways now, too, or did so in the
    run; `changed` when it always ends in this other way by now. `seconds` is what the execution took.
    """

    id: str
    round: int
    execution: int
    recorded: TestReport
    report: TestReport
    differences: tuple[Difference, ...] = ()
    cause: Literal["flaky", "changed"] | None = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def same(self) -> bool:
        """Whether the outcome is the recorded one."""
        return not self.differences


@dataclass(frozen=True)
class ReplayFailure:
    """An execution that could not be run again, and why; this says nothing of its outcome."""

    id: str
    round: int
    error: ErrorInfo


class Replayer:
    """Runs a run's programs again; safe to call concurrently, in one event loop.

    A program starts in a fresh sandbox, after the commands that had run in it; what an earlier execution left behind is
    not there, for a program whose outcome hangs on that cannot be relied on.

    Args:
        view: the run.
        backend: a started backend, which the caller closes; its packages should come from `select.LOCKED_BACKENDS`.
        conditions: what held in the run, of all that is replayed (`grouped`).
        config: the times to hold, by default those of the run.
        concurrency: executions at once.
        again: how often a program that ended otherwise is run once more, to see whether it always does.
    """

    def __init__(
        self,
        view: RunView,
        backend: SandboxBackend,
        conditions: RecordedSandbox,
        *,
        config: Config | None = None,
        concurrency: int = 4,
        again: int = 2,
    ) -> None:
        config = config or conditions.config
        self._view = view
        self._backend = backend
        self._pipeline = config.pipeline
        self._languages = built_in_languages()
        self._concurrency = concurrency
        self._again = again
        self._gates = SandboxGates(asyncio.Semaphore(config.sandbox.starts), asyncio.Semaphore(concurrency))
        self._same_interpreter = conditions.has_same_interpreter(backend)
        self.notes = tuple(conditions.notes(config, backend))

    async def replay(self, pair_id: str, round: int = 0, number: int | None = None) -> ReplayResult:
        """Run an execution of a pair again, by default the last one, and compare.

        Raises:
            NotReplayable: there is none, or too little is known of it.
            LockUnavailable: its packages cannot be had in the recorded versions.
            UnsupportedLanguage: there is no `Language` for the pair.
            SandboxError: the sandbox broke.
        """
        execution = read_execution(self._view, pair_id, round, number)
        environment, notes = await self._environment(execution)
        key = None if environment is None else environment.key
        try:
            now = await self._run(execution, key)
            differing = compare_reports(execution.execution.report, now.report)
            cause: Literal["flaky", "changed"] | None = None
            if differing:
                cause = "flaky" if execution.flaky or await self._varies(execution, key, now.report) else "changed"
        finally:
            if key is not None:
                self._backend.environments.release(key)
        return replace(now, differences=differing, cause=cause, notes=(*notes, *now.notes))

    def replay_all(self, keys: Sequence[Key]) -> AsyncGenerator[ReplayResult | ReplayFailure, None]:
        """Yield what became of each, as they are ready. Leaving early ends the sandboxes in use.

        Raises:
            RunFolderError: the run's evidence is damaged.
        """
        return run_concurrently(keys, self._try, concurrency=self._concurrency)

    async def _try(self, key: Key) -> ReplayResult | ReplayFailure:
        try:
            return await self.replay(*key)
        except (NotReplayable, PairError) as error:
            return ReplayFailure(*key, ErrorInfo(type=type(error).__name__, message=str(error)))

    async def _environment(self, recorded: RecordedExecution) -> tuple[Environment | None, list[str]]:
        """Return the packages that the program had; the caller releases them."""
        key, lock = recorded.execution.environment, recorded.execution.installed
        if key is None:
            return None, []
        builder = self._backend.environments
        kept = await builder.find_cached(key) if self._same_interpreter else None
        if kept is not None and kept.installed == lock:
            return kept, []
        if kept is not None:
            builder.release(kept.key)
        try:
            built = await builder.build(lock)
        except DependencyUnavailable as error:
            raise LockUnavailable(
                f"pair {recorded.pair.id!r}: its packages cannot be had any more ({', '.join(lock)}): {error}"
            ) from error
        if built.installed != lock:
            builder.release(built.key)
            raise LockUnavailable(f"pair {recorded.pair.id!r}: {_otherwise(lock, built.installed)}")
        other = ["the packages are of the recorded versions, and other files"] if built.key != key else []
        return built, other if self._same_interpreter else []

    async def _varies(self, recorded: RecordedExecution, environment: str | None, report: TestReport) -> bool:
        for _ in range(self._again):
            if compare_reports(report, (await self._run(recorded, environment)).report):
                return True
        return False

    async def _run(self, recorded: RecordedExecution, environment: str | None) -> ReplayResult:
        """Run the program once, after the commands that it had; nothing is compared yet."""
        pair = recorded.pair
        language = self._languages.get(pair.language)
        if language is None:
            raise UnsupportedLanguage(f"pair {pair.id!r}: no support for language {pair.language!r}")
        session = SandboxSession(self._backend, self._gates, attempts=self._pipeline.sandbox_attempts)
        notes = []
        try:
            for argv in recorded.commands:
                done = await session.run_command(argv, self._pipeline.command_timeout)
                if done.exit_code != 0:
                    notes.append(f"the command {' '.join(argv)} ran then, and fails now: {done.output.strip()[-200:]}")
            job = language.job(recorded.program, environment=environment, timeout=self._pipeline.test_timeout)
            result = await session.run(job)
        finally:
            await session.close()
        try:
            report = language.report(recorded.program, result)
        except MalformedProgram as error:
            raise NotReplayable(f"pair {pair.id!r}: its recorded program is none: {error}") from error
        return ReplayResult(
            id=pair.id,
            round=recorded.round,
            execution=recorded.number,
            recorded=recorded.execution.report,
            report=report,
            notes=tuple(notes),
            seconds=result.seconds,
        )


@asynccontextmanager
async def open_replayer(
    view: RunView,
    conditions: RecordedSandbox,
    *,
    config: Config | None = None,
    concurrency: int = 4,
    progress: Callable[[str], None] = lambda _line: None,
) -> AsyncIterator[Replayer]:
    """Give a replayer over a backend as `conditions` or `config` have it; `progress` is given lines for the user.

    Raises:
        NotReplayable: the run had an image, or files of its machine, that `config` does not give again.
        SandboxUnavailable: there is no such sandbox here.
    """
    config = config or conditions.config
    conditions.check(config)
    backend = await choose(config.sandbox, progress, backends=LOCKED_BACKENDS)
    try:
        yield Replayer(view, backend, conditions, config=config, concurrency=concurrency)
    finally:
        await backend.close()


def _otherwise(lock: Sequence[str], built: Sequence[str]) -> str:
    lacking = ", ".join(sorted({*lock} - {*built})) or "nothing"
    more = ", ".join(sorted({*built} - {*lock})) or "nothing"
    return f"its packages come out otherwise than recorded (lacking: {lacking}; more: {more})"


@dataclass
class ReplayCounts:
    """Counts what became of executions one by one; keeps those that did not end as they did."""

    same: int = 0
    different: list[ReplayResult] = field(default_factory=list)
    not_run: list[ReplayFailure] = field(default_factory=list)
    _pairs: dict[str, bool] = field(default_factory=dict)

    def add(self, outcome: ReplayResult | ReplayFailure) -> None:
        """Count one."""
        if isinstance(outcome, ReplayFailure):
            self.not_run.append(outcome)
            return
        self._pairs[outcome.id] = outcome.same and self._pairs.get(outcome.id, True)
        self.same += outcome.same
        if not outcome.same:
            self.different.append(outcome)

    def __str__(self) -> str:
        return f"same:{self.same} different:{len(self.different)} not run:{len(self.not_run)}"

    def summarise(self) -> dict[str, Any]:
        """Return the counts so far. Of the executions that could be run, `same` and `different` are all.

        `share` is that of `pairs_same` among `pairs_replayed`, None when there are none: of a pair, every round that
        could be run must have ended as it did. `low` and `high` are its Wilson 95% interval: over pairs, since the
        rounds of one are not independent. `flaky` and `only_messages` count among the `different`.
        """
        pairs, alike = len(self._pairs), sum(self._pairs.values())
        low, high = astuple(wilson_interval(alike, pairs)) if pairs else (None, None)
        return {
            "pairs_replayed": pairs,
            "pairs_same": alike,
            "same": self.same,
            "different": len(self.different),
            "flaky": sum(each.cause == "flaky" for each in self.different),
            "only_messages": sum({one.kind for one in each.differences} == {"message"} for each in self.different),
            "not_run": dict(Counter(each.error.type for each in self.not_run).most_common()),
            "share": alike / pairs if pairs else None,
            "low": low,
            "high": high,
        }
