"""Runs pairs through a pipeline, each with its own model calls and its own sandbox."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from agent.errors import Deferred, NodeError, PairError, PairTimeout, SandboxUnavailable
from agent.events import PairFinished, PairStarted, StepDone
from agent.languages.base import Language
from agent.llm.gateway import Gateway
from agent.pipeline.asker import Asker
from agent.pipeline.history import NodeRun, Recorder
from agent.pipeline.state import State, Tools
from agent.runs.spec import RunSpec
from agent.sandbox.base import SandboxBackend
from agent.sandbox.session import SandboxGates, SandboxSession
from agent.types import Annotation, ErrorInfo, ModuleContext, Pair, Usage

_log = logging.getLogger(__name__)


class Runner(Protocol):
    """Annotates pairs. `annotate` can be called concurrently."""

    async def annotate(self, pair: Pair, round_number: int, recorder: Recorder) -> Annotation:
        """Annotate a pair and record what happens. A `PairError` becomes `annotation.error`.

        Raises:
            RunStopped: the run cannot continue.
            Deferred: a model call is waiting for its batch. Batch replies that the pair claimed are released.
        """
        ...


async def require_toolchains(spec: RunSpec, backend: SandboxBackend | None, languages: Iterable[str]) -> None:
    """Check the toolchains of these languages, if programs run in them.

    Unless unsupported languages are errors, a language without its toolchain is treated as an unsupported one.

    Raises:
        SandboxUnavailable: a toolchain is missing or too old. The message explains how to install it.
        SandboxError: no sandbox starts.
    """
    for name in languages if backend is not None and spec.pipeline.uses_sandbox else ():
        language = spec.find_language(name)
        if backend is not None and language is not None and language.toolchain is not None:
            try:
                await backend.require_toolchain(language.toolchain)
            except SandboxUnavailable as error:
                if spec.unsupported == "fail":
                    raise
                spec.untestable[name] = f"cannot be tested on this machine: {error}"


@dataclass
class PairRunner:
    """Runs pairs through the pipeline of `spec` in this process.

    Pairs in unsupported languages run through the fallback pipeline. If there is none, they are skipped.
    """

    spec: RunSpec
    gateway: Gateway
    backend: SandboxBackend | None

    @cached_property
    def _gates(self) -> SandboxGates:
        config = self.spec.config
        return SandboxGates(
            starting=asyncio.Semaphore(config.sandbox.starts), running=asyncio.Semaphore(config.runner.sandboxes)
        )

    async def annotate(self, pair: Pair, round_number: int, recorder: Recorder) -> Annotation:
        spec, settings = self.spec, self.spec.config.pipeline
        spec.emit(PairStarted(pair.id, round_number))
        started = since = time.monotonic()
        asker = Asker(
            self.gateway,
            spec.prompts,
            recorder,
            pair_id=pair.id,
            sample=round_number,
            format_retries=settings.format_retries,
        )
        state: State = {"pair": pair}
        error: ErrorInfo | None = None
        limit = settings.pair_timeout
        try:
            async with (
                asyncio.timeout(limit) as deadline,
                aclosing(self._iterate_steps(state, asker, recorder)) as steps,
            ):
                async for node, update, state in steps:  # noqa: B007 - the annotation is built from the last state
                    now = time.monotonic()
                    _record(recorder, node, update, round(now - since, 4))
                    since = now
                    spec.emit(StepDone(pair.id, node, update["outcome"], round_number))
        except Deferred:
            self.gateway.mark_prepaid(recorder.history.model_calls)
            raise
        except PairError as problem:
            if isinstance(problem, NodeError):
                recorder.add(NodeRun(node=problem.node, outcome="raised", seconds=round(time.monotonic() - since, 4)))
            error = ErrorInfo(type=type(problem).__name__, message=str(problem))
        except TimeoutError:
            if not deadline.expired():
                raise
            error = ErrorInfo(
                type=PairTimeout.__name__, message=f"the pair took longer than {limit:g} s (pair_timeout)"
            )
        annotation = _build_annotation(state, round_number, asker.usage, error, time.monotonic() - started)
        _log.info(
            "pair %r, round %d: label %s, decided by %s, %.2f s, error: %s",
            pair.id,
            round_number,
            annotation.label,
            annotation.decided_by,
            annotation.seconds,
            error and error.type,
        )
        spec.emit(PairFinished(annotation, generated="program" in state, executions=len(recorder.history.tests)))
        return annotation

    async def _iterate_steps(
        self, state: State, asker: Asker, recorder: Recorder
    ) -> AsyncGenerator[tuple[str, State, State], None]:
        """Run the pipeline for the pair's language.

        Yield the name, the state changes and the resulting state of each node that ran. In an unsupported language, the
        reason is added to `state`.
        """
        spec, settings, pair = self.spec, self.spec.config.pipeline, state["pair"]
        await require_toolchains(spec, self.backend, [pair.language])
        language = spec.find_language(pair.language)
        if language is None and spec.pipeline.variant.opens_context:
            state["module_context"] = ModuleContext(reason=f"tests in {pair.language} do not run in modules")
        pipeline = spec.pipeline if language is not None else spec.fallback
        if pipeline is None:
            state["reason"] = f"skipped: language {pair.language!r} {spec.untestable[pair.language]}"
            return
        session = None
        if self.backend is not None and pipeline.uses_sandbox:
            session = SandboxSession(
                self.backend,
                self._gates,
                attempts=settings.sandbox_attempts,
                requirements=_get_requirements(pair),
                executions=spec.executions,
                tracer=spec.tracer,
                forks=spec.config.sandbox.zygote == "auto",
            )
        tools = Tools(asker, recorder, language or Language(pair.language), settings, session, spec.tracer)
        try:
            async with aclosing(pipeline.run(state, tools)) as steps:
                async for step in steps:
                    yield step
        finally:
            if session is not None:
                await session.close()


def _record(recorder: Recorder, node: str, update: State, seconds: float) -> None:
    if "program" in update:
        recorder.number_program(update["program"])
    recorder.add(
        NodeRun(
            node=node,
            outcome=update["outcome"],
            seconds=seconds,
            label=update.get("label"),
            decided_by=update.get("decided_by"),
            reason=update.get("reason", ""),
        )
    )


def _get_requirements(pair: Pair) -> tuple[str, ...]:
    """Return the pair's `meta.requirements`, or an empty tuple if the field is not a list of strings."""
    requirements = pair.meta.get("requirements")
    if isinstance(requirements, list) and all(isinstance(requirement, str) for requirement in requirements):
        return tuple(requirements)
    return ()


def _build_annotation(
    state: State, round_number: int, usage: Usage, error: ErrorInfo | None, seconds: float
) -> Annotation:
    pair, environment = state["pair"], state.get("environment")
    verdict: State = {} if error is not None else state
    return Annotation(
        id=pair.id,
        input_sha256=pair.input_sha256(),
        round=round_number,
        label=verdict.get("label"),
        decided_by=verdict.get("decided_by"),
        reason=verdict.get("reason", ""),
        document=verdict.get("document"),
        screen_verdict=state.get("screen_verdict"),
        audited=state.get("audited", False),
        test=state.get("report"),
        simulated=state.get("simulated"),
        stand_ins=state["program"].stand_ins if "program" in state else (),
        module_context=state.get("module_context"),
        reading=state.get("reading", ""),
        repairs=state.get("repairs", 0),
        installed=() if environment is None else environment.installed,
        seconds=round(seconds, 3),
        usage=usage,
        error=error,
        meta=pair.meta,
    )
