"""An open run: its cache, sandboxes or workers, budget and limits."""

from __future__ import annotations

import platform
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Sequence
from contextlib import AsyncExitStack, ExitStack, aclosing, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from agent.datasets.pair_store import PairStore
from agent.errors import SandboxUnavailable
from agent.events import Note, ReplyReceived, RunStarted, Waiting
from agent.llm.base import Call, Reply, close
from agent.llm.budget import Budget
from agent.llm.gateway import Gateway, ReplyCache, Transport
from agent.llm.limits import Limits
from agent.llm.models import RepeatedReplies, explain_dependence
from agent.runs.batches import Batches
from agent.runs.job import Job
from agent.runs.ray import RayEngine, RayRunner
from agent.runs.ray_worker import SandboxInfo
from agent.runs.runner import Runner, TracedRunner
from agent.runs.spec import RunSpec
from agent.runs.store.cache import SqliteReplyCache
from agent.runs.store.run_folder import RunFolder
from agent.sandbox.base import SandboxBackend
from agent.sandbox.dependencies.environments import REPORT_INTERVAL
from agent.sandbox.select import choose, limits_as_settings
from agent.types import Annotation, Pair

_RECORDED = ("test-driven-annotator", "langgraph", "langchain-openai", "openai", "docker")
_WITHOUT_SANDBOX = "Or choose a variant that does not run programs: --variant single_llm or ps_fa."


class Run:
    """An open run.

    An asynchronous context manager that closes the resources that it opened, but not objects passed to it.
    """

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self._cache: ReplyCache | None = None
        self._backend: SandboxBackend | None = spec.backend
        self._engine: RayEngine | None = None
        self._sandbox_info = SandboxInfo()
        self._limits: Limits
        self._budget = spec.budget or Budget.of(spec.config.runner)
        self._resources = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Open the cache, and start the sandboxes or the workers.

        Raises:
            SandboxUnavailable: the variant needs a sandbox, but none works.
            DeadlineReached: the deadline has passed.
        """
        spec = self.spec
        async with AsyncExitStack() as resources:
            self._cache = SqliteReplyCache(spec.cache) if isinstance(spec.cache, Path) else spec.cache
            if isinstance(self._cache, SqliteReplyCache) and self._cache is not spec.cache:
                resources.callback(self._cache.close)
            for model in spec.models.list_models():
                resources.push_async_callback(close, model)
            starts_sandboxes = spec.config.runner.engine == "ray" or spec.sandbox is not None
            async with self._budget.enforce_deadline() if starts_sandboxes else nullcontext():
                await self._start(resources)
            workers = 1 if self._engine is None else self._engine.workers
            self._limits = Limits(spec.config.runner, self._report_wait, workers=workers)
            self._resources = resources.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all resources, even if closing one of them fails."""
        await self._resources.aclose()

    async def _start(self, resources: AsyncExitStack) -> None:
        spec = self.spec
        try:
            if spec.config.runner.engine == "ray":
                # the driver process sends the OpenTelemetry spans
                tracing = spec.config.tracing.model_copy(update={"otel": False})
                parts = (spec.models, spec.backend, spec.sandbox, tracing, spec.make_runner_factory())
                self._engine = RayEngine(spec.config.runner, parts, spec.emit)
                resources.push_async_callback(self._engine.close)
                self._sandbox_info = await self._engine.open()
                return
            if spec.sandbox is not None:
                self._backend = await choose(spec.sandbox, self._report_note)
                resources.push_async_callback(self._backend.close)
                self._backend.listen(lambda message: self._report_wait(message, REPORT_INTERVAL))
            self._sandbox_info = SandboxInfo.of(self._backend)
        except SandboxUnavailable as error:
            raise type(error)(f"{error}\n{_WITHOUT_SANDBOX}") from error

    def environment(self) -> dict[str, Any]:
        """Return the environment that run folders record: versions, sandbox, limits and model servers."""
        servers = self.spec.models.list_addresses()
        return {
            "versions": {name: version(name) for name in _RECORDED} | {"python": platform.python_version()},
            "sandbox": dict(self._sandbox_info.description) or None,
            "limits": limits_as_settings(self._sandbox_info.limits),
            **({"servers": servers} if servers else {}),
        }

    async def annotate(
        self, pairs: Iterable[Pair] | AsyncIterable[Pair], *, ordered: bool = False, limit: int | None = None
    ) -> AsyncGenerator[Annotation, None]:
        """Annotate pairs and iterate over the annotations, including finished ones from the run folder.

        Raises:
            InputError: two pairs share an id, or a language is not supported.
            RunStopped: the run cannot continue.
        """
        if self.spec.run_dir is not None:
            pairs = await PairStore.of(pairs)
        if isinstance(pairs, Sequence):
            for pair in pairs.of_each_language() if isinstance(pairs, PairStore) else pairs:
                self.spec.check_pair(pair)
        with ExitStack() as stack:
            job = self._create_job(pairs, ordered, limit, stack)
            self.spec.emit(self._build_start_event(job))
            async with aclosing(job.annotate()) as annotations:
                async for annotation in annotations:
                    yield annotation

    def _create_job(
        self, pairs: Iterable[Pair] | AsyncIterable[Pair], ordered: bool, limit: int | None, stack: ExitStack
    ) -> Job:
        spec, folder, batches = self.spec, None, None
        if spec.run_dir is not None and isinstance(pairs, PairStore):
            folder = stack.enter_context(self._open_folder(spec.run_dir, pairs))
            if spec.retry_errors and self._cache is not None:
                folder.discard_unusable(self._cache)
        spent = (0.0, 0) if folder is None else (folder.spent_usd(spec.models.price), folder.spent_tokens())
        budget = spec.budget or self._budget.with_spending(*spent)
        if spec.config.runner.batch and folder is not None and isinstance(self._cache, SqliteReplyCache):
            batches = Batches(folder.path, spec.models, self._cache, budget, spec.emit, retry_errors=spec.retry_errors)
            stack.callback(batches.close)
        runner = self._create_runner(folder, budget, spec.transport or batches)
        return Job(
            spec,
            pairs,
            TracedRunner(runner, spec.tracer, spec.pipeline.variant.name),
            folder,
            budget=budget,
            batches=batches,
            concurrency=self._limits.count_pairs,
            ordered=ordered,
            limit=limit,
        )

    def _create_runner(self, folder: RunFolder | None, budget: Budget, transport: Transport | None) -> Runner:
        emit, limits, repeated = self.spec.emit, self._limits, RepeatedReplies()

        def on_reply(call: Call, reply: Reply) -> None:
            if folder is not None:
                folder.record_reply(call.role, reply)
            if self.spec.config.runner.rounds > 1 and (warning := repeated.check(call, reply)) is not None:
                self._report_note(warning)
            emit(ReplyReceived(call.role, reply.model, reply.usage, reply.cached, limits.in_flight, limits.allowed))

        gateway = Gateway(
            self.spec.models,
            transport=transport,
            cache=self._cache,
            recall=None if folder is None else folder.find_shared_reply,
            limits=limits,
            budget=budget,
            on_reply=on_reply,
            on_wait=self._report_wait,
            tracer=self.spec.tracer,
        )
        if self._engine is not None:
            return RayRunner(self._engine, gateway, (lambda _paid: None) if folder is None else folder.record_abandoned)
        return self.spec.make_runner_factory()(
            gateway=gateway, backend=self._backend, listener=emit, tracer=self.spec.tracer
        )

    def _open_folder(self, path: Path, pairs: PairStore) -> RunFolder:
        cache = self._cache if isinstance(self._cache, SqliteReplyCache) else None
        identity, environment = self.spec.identity(), self.environment()
        folder = RunFolder(path, identity=identity, pairs=pairs, environment=environment, cache=cache)
        for note in folder.notes:
            self._report_note(note)
        return folder

    def _build_start_event(self, job: Job) -> RunStarted:
        rounds = self.spec.config.runner.rounds
        if rounds > 1 and (doubt := explain_dependence(self.spec.models.list_models())) is not None:
            self._report_note(doubt)
        if job.folder is not None and (recorded := job.folder.index.round_count) > rounds:
            self._report_note(
                f"this command shows {rounds} of the run's {recorded} rounds; labels.jsonl is based on all rounds"
            )
        return RunStarted(job.total, job.finished, self.spec.pipeline.variant.name, self._sandbox_info.name, rounds)

    def _report_wait(self, message: str, seconds: float) -> None:
        self.spec.emit(Waiting(message, seconds))

    def _report_note(self, message: str) -> None:
        self.spec.emit(Note(message))
