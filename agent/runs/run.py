"""An open run: its cache, sandboxes or workers, budget and limits."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, aclosing, nullcontext
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from agent.datasets.fields import Pairs, as_pairs
from agent.datasets.pair_store import PairStore
from agent.errors import SandboxUnavailable, UsageError
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
from agent.runs.runner import PairRunner, Runner, require_toolchains
from agent.runs.spec import RunSpec
from agent.runs.store.cache import SqliteReplyCache
from agent.runs.store.run_folder import RunFolder
from agent.sandbox.base import SandboxBackend
from agent.sandbox.dependencies.environments import REPORT_INTERVAL
from agent.sandbox.select import choose, limits_as_settings
from agent.streams import Put, Stream, cancel_and_wait, iterate
from agent.types import Annotation, Pair, check_type

_RECORDED = ("test-driven-annotator", "langgraph", "langchain-openai", "openai", "docker")
_WITHOUT_SANDBOX = "Or choose a variant that does not run programs: --variant single_llm or ps_fa."


class Run:
    """A run, open in one event loop. It can annotate pairs several times.

    An asynchronous context manager that closes the resources that it opened, but not objects passed to it.
    """

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self._cache: ReplyCache | None = None
        self._backend: SandboxBackend | None = spec.backend
        self._engine: RayEngine | None = None
        self._sandbox_info = SandboxInfo()
        self._limits: Limits
        self._budget: Budget
        self._resources = AsyncExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Open the cache, and start the sandboxes or the workers.

        Raises:
            UsageError: the run is already open.
            SandboxUnavailable: the variant needs a sandbox, but none works.
            DeadlineReached: the deadline has passed.
        """
        if self._loop is not None:
            raise UsageError("this Annotator is already open; use one per event loop")
        spec, self._loop = self.spec, asyncio.get_running_loop()
        async with AsyncExitStack() as resources:
            resources.callback(setattr, self, "_loop", None)
            self._budget = spec.budget or Budget.of(spec.config.runner)
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
        """Cancel all work in progress and close all resources, even if closing one of them fails."""
        self._loop = None
        for task in self._tasks:
            self._resources.push_async_callback(cancel_and_wait, task)
        await self._resources.aclose()

    async def _start(self, resources: AsyncExitStack) -> None:
        spec = self.spec
        try:
            if spec.config.runner.engine == "ray":
                self._engine = RayEngine(spec)
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

    def identity(self) -> dict[str, Any]:
        """Return the run identity: everything that affects labels, except the input.

        Raises:
            UsageError: a requirements file cannot be read.
        """
        return self.spec.identity()

    def environment(self, languages: Iterable[str] = ()) -> dict[str, Any]:
        """Return the environment that run folders record: versions, sandbox, limits and model servers.

        Includes the packages that provide `languages`.
        """
        servers = self.spec.models.list_addresses()
        packages = {name: text for name in languages if (text := self.spec.languages.describe_package(name))}
        return {
            "versions": {name: version(name) for name in _RECORDED} | {"python": platform.python_version()},
            "sandbox": dict(self._sandbox_info.description) or None,
            "limits": limits_as_settings(self._sandbox_info.limits),
            **({"servers": servers} if servers else {}),
            **({"languages": packages} if packages else {}),
        }

    def annotate(
        self,
        pairs: Pairs,
        *,
        mapping: Mapping[str, str] | str | None = None,
        ordered: bool = False,
        limit: int | None = None,
    ) -> Stream[Annotation]:
        """Iterate over one annotation per pair and round, in completion order or, with `ordered`, in input order.

        `pairs` is an iterable or asynchronous iterable of `Pair` objects, or of mappings with the same fields as a line
        of a pairs file. It can also be a pandas DataFrame with these fields as columns, or the result of `read_pairs`.
        `mapping` maps field names to the names in the input, as in `{"query": "question", "code": "snippet"}`.

        With `run_dir`, all pairs are read first, and finished annotations of an earlier session are returned unchanged.
        If `limit` is set, only the first `limit` pairs of the input are annotated; a later call can annotate the rest.
        Without `ordered`, pairs with the same query run in succession so that providers can cache the start of the
        prompts.

        Leaving the loop early, closing the iterator, cancelling the waiting task or closing the `Annotator` cancels the
        work in progress and releases its sandboxes.

        Raises:
            UsageError: the `Annotator` is not open, belongs to another event loop, or was closed during iteration. Also
                raised if `pairs` has an unsupported type, or if `mapping` is passed for pairs that `read_pairs` has
                already read.
            ConfigError: `mapping` is malformed or names a field that a pair does not have.
            InputError: an item is not a valid pair, two pairs share an id (checked only with `run_dir`), a mapped field
                is missing from every item, or a pair's language is unsupported.
            RunStopped: the run cannot continue (account problem, outage, budget, deadline or disk failure). Finished
                annotations are saved.
        """
        if self._loop is None or self._loop is not asyncio.get_running_loop():
            raise UsageError("open the Annotator in this event loop first: async with Annotator(...) as annotator")
        check_type("ordered", ordered, (bool,), "True or False")
        check_type("limit", limit, (int,), "a number of pairs")
        if ordered and self.spec.config.runner.batch:
            raise UsageError("runner.batch returns annotations in completion order; pass ordered=False")
        if limit is not None and limit < 0:
            raise UsageError(f"limit={limit}: limit must be 0 or greater")
        earlier = {task for task in self._tasks if not task.done()}
        annotate = partial(self._annotate, as_pairs(pairs, mapping), ordered=ordered, limit=limit, earlier=earlier)
        stream = Stream(annotate)
        self._tasks = {*earlier, stream.task}
        return stream

    async def _annotate(
        self,
        pairs: Iterable[Pair] | AsyncIterable[Pair],
        put: Put[Annotation],
        *,
        ordered: bool,
        limit: int | None,
        earlier: Iterable[asyncio.Task[None]],
    ) -> None:
        for task in earlier:
            if task.cancelling():  # its iterator was abandoned, but it may still use the run folder
                await asyncio.wait([task])
        if self.spec.run_dir is not None and not isinstance(pairs, PairStore):
            async with aclosing(iterate(pairs)) as source:
                pairs = PairStore()
                async for pair in source:
                    pairs.add(pair)
        if isinstance(pairs, Sequence):
            languages = set()
            for pair in pairs.of_each_language() if isinstance(pairs, PairStore) else pairs:
                self.spec.check_pair(pair)
                languages.add(pair.language)
            await self._require_toolchains(sorted(languages))
        with ExitStack() as stack:
            job = self._create_job(pairs, ordered, limit, stack)
            self.spec.emit(self._build_start_event(job))
            await job.annotate(put)

    async def _require_toolchains(self, languages: Sequence[str]) -> None:
        """Check the toolchains before any model call, and record their versions."""
        if self._engine is not None:
            self._sandbox_info = await self._engine.require_toolchains(languages)
        else:
            await require_toolchains(self.spec, self._backend, languages)
            self._sandbox_info = SandboxInfo.of(self._backend)

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
        return Job(
            spec,
            pairs,
            self._create_runner(folder, budget, spec.transport or batches),
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
        return PairRunner(self.spec, gateway, self._backend)

    def _open_folder(self, path: Path, pairs: PairStore) -> RunFolder:
        cache = self._cache if isinstance(self._cache, SqliteReplyCache) else None
        languages = [pair.language for pair in pairs.of_each_language()]
        identity, environment = self.spec.identity(languages), self.environment(languages)
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
