"""Takes pairs through a pipeline, each with its own questions and its own sandbox."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agent.config import Config
from agent.errors import PairError, PairTimeout
from agent.events import Event, PairFinished, PairStarted, StepDone
from agent.graph import Pipeline
from agent.history import Exchange, History, Recorder, Visit
from agent.languages.base import Language
from agent.languages.plain import PlainLanguage
from agent.llm.asking import Asker
from agent.llm.gateway import Gateway
from agent.prompts import Prompts
from agent.sandbox.base import SandboxBackend
from agent.sandbox.eras import Eras
from agent.sandbox.session import SandboxGates, SandboxSession, SharedExecutions
from agent.state import State, Step, Tools
from agent.types import Annotation, ErrorInfo, Pair, Usage

Listener = Callable[[Event], None]


@dataclass(frozen=True)
class Finished:
    """A pair's annotation and everything that led to it."""

    annotation: Annotation
    history: History


class PairRunner:
    """Takes one pair at a time through a pipeline; safe to call concurrently.

    `on_abandoned` is given the exchanges of a pair that is left without annotation: the run ends, or is cancelled.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        gateway: Gateway,
        prompts: Prompts,
        languages: Mapping[str, Language],
        backend: SandboxBackend | None,
        config: Config,
        fallback: Pipeline | None = None,
        executions: SharedExecutions | None = None,
        listener: Listener,
        on_abandoned: Callable[[Sequence[Exchange]], None] | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._gateway = gateway
        self._prompts = prompts
        self._languages = languages
        self._backend = backend
        self._config = config
        self._fallback = fallback
        self._executions = executions
        self._listener = listener
        self._on_abandoned = on_abandoned
        self._gates = SandboxGates(
            starting=asyncio.Semaphore(config.sandbox.starts),
            running=asyncio.Semaphore(config.runner.sandboxes),
        )

    async def annotate(self, pair: Pair, round_number: int = 0) -> Finished:
        """Annotate a pair; what goes wrong with it becomes `annotation.error`.

        Raises:
            RunStopped: nothing can go on.
        """
        self._listener(PairStarted(pair.id, round_number))
        started = time.monotonic()
        recorder = Recorder(pair)
        asker = Asker(
            self._gateway,
            self._prompts,
            recorder,
            pair_id=pair.id,
            sample=round_number,
            reasks=self._config.pipeline.reasks,
        )
        progress = _Progress(pair, round_number, recorder, self._listener)
        error: ErrorInfo | None = None
        try:
            await self._run(pair, asker, progress)
        except PairError as problem:
            error = ErrorInfo(type=type(problem).__name__, message=str(problem))
        except BaseException:
            if self._on_abandoned is not None:
                self._on_abandoned(recorder.history.exchanges)
            raise
        finished = Finished(
            _annotation(pair, round_number, progress.state, asker.usage, error, time.monotonic() - started),
            recorder.history,
        )
        self._listener(
            PairFinished(
                finished.annotation,
                generated="program" in progress.state,
                executions=len(finished.history.tests),
            )
        )
        return finished

    async def _run(self, pair: Pair, asker: Asker, progress: _Progress) -> None:
        language, pipeline = self._languages.get(pair.language), self._pipeline
        if language is None and self._fallback is None:
            progress.state["reason"] = f"skipped: no support for language {pair.language!r}"
            return
        if language is None and self._fallback is not None:
            pipeline = self._fallback
        session = None
        if self._backend is not None and pipeline.uses_sandbox:
            eras = self._backend if isinstance(self._backend, Eras) else None
            session = SandboxSession(
                self._backend if eras is None else eras.of(pair.meta.get("year")),
                self._gates,
                attempts=self._config.pipeline.sandbox_attempts,
                requirements=_requirements(pair),
                executions=self._executions,
            )
        tools = Tools(
            asker=asker,
            history=progress.recorder,
            language=language or PlainLanguage(pair.language),
            config=self._config.pipeline,
            session=session,
            on_step=progress.add,
        )
        limit = self._config.pipeline.pair_timeout
        try:
            async with asyncio.timeout(limit) as deadline:
                await pipeline.run(progress.state, tools)
        except TimeoutError as problem:
            if not deadline.expired():
                raise
            raise PairTimeout(f"the pair took longer than {limit:g} s (pair_timeout)") from problem
        finally:
            if session is not None:
                await session.close()


class _Progress:
    """Keeps what a pair's nodes did and concluded, so that an error in a later one loses none of it."""

    def __init__(self, pair: Pair, round_number: int, recorder: Recorder, listener: Listener) -> None:
        self.state = State(pair=pair)
        self.recorder = recorder
        self._round = round_number
        self._listener = listener
        self._since = time.monotonic()

    def add(self, node: str, step: Step) -> None:
        now = time.monotonic()
        update = step.update
        if "program" in update:
            self.recorder.number_of(update["program"])
        self.recorder.add(
            Visit(
                node=node,
                outcome=step.outcome,
                seconds=round(now - self._since, 4),
                label=update.get("label"),
                decided_by=update.get("decided_by"),
                reason=update.get("reason", ""),
                spec=update.get("spec"),
            )
        )
        self._since = now
        self.state = {**self.state, **step.update}
        self._listener(StepDone(self.state["pair"].id, node, step.outcome, self._round))


def _requirements(pair: Pair) -> tuple[str, ...]:
    """Return what a pair says it needs; a field of that name with anything but a list of texts means something else."""
    named = pair.meta.get("requirements")
    if isinstance(named, list) and all(isinstance(each, str) for each in named):
        return tuple(named)
    return ()


def _annotation(
    pair: Pair, round_number: int, state: State, usage: Usage, error: ErrorInfo | None, seconds: float
) -> Annotation:
    environment = state.get("environment")
    decided = error is None
    return Annotation(
        id=pair.id,
        input_sha256=pair.input_sha256(),
        round=round_number,
        label=state.get("label") if decided else None,
        decided_by=state.get("decided_by") if decided else None,
        reason=state.get("reason", "") if decided else "",
        screen_verdict=state.get("screen_verdict"),
        test=state.get("report"),
        simulated=state.get("simulated"),
        stand_ins=state["program"].stand_ins if "program" in state else (),
        reading=_reading(state),
        strength=state.get("strength"),
        votes=state.get("votes", ()),
        confidence=state.get("confidence") if decided else None,
        abstained=state.get("abstained", False) if decided else False,
        repairs=state.get("repairs", 0),
        installed=() if environment is None else environment.installed,
        seconds=round(seconds, 3),
        usage=usage,
        error=error,
        meta=pair.meta,
    )


def _reading(state: State) -> str:
    return state.get("met") or state.get("reading", "")
