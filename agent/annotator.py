"""The Python interface: annotate pairs as they come, in a running event loop."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping, Sequence, Set
from contextlib import AsyncExitStack, ExitStack, aclosing, nullcontext
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Self

from agent.arguments import check_all
from agent.batches import Batches, ResultsOnDisk, check_possible
from agent.checks import check_type
from agent.config import Config, SandboxConfig, configured
from agent.datasets import Pairs, Spool, pairs_of
from agent.engines.ray import RayEngine, RayRunner
from agent.engines.worker import SandboxInfo
from agent.errors import InputError, SandboxUnavailable, UsageError
from agent.events import Event, Note, ReplyReceived, RunStarted, Waiting
from agent.graph import Variant, build, known_roles
from agent.job import Job
from agent.languages import Language, built_in_languages
from agent.llm.base import Call, Reply, close
from agent.llm.budget import Budget
from agent.llm.gateway import Gateway, ReplyCache, Transport
from agent.llm.limits import Limits
from agent.llm.models import Models, ModelSource, independence
from agent.nodes import BUILT_IN
from agent.prompts import Prompts
from agent.runner import PairRunner, Runner, TracedRunner
from agent.sandbox.base import SandboxBackend
from agent.sandbox.dependencies.environments import AGAIN
from agent.sandbox.dependencies.requirements import read_requirements
from agent.sandbox.select import choose, limit_settings
from agent.sandbox.session import SharedExecutions
from agent.state import Node
from agent.store.cache import SqliteReplyCache
from agent.store.run_folder import RunFolder
from agent.streams import Production, Stream
from agent.tracing import tracer_for
from agent.types import Annotation, Pair, language_name

_RECORDED = ("test-driven-annotator", "langgraph", "langchain-openai", "openai", "docker")
_SUPPLIED = ("image", "mount_ro", "requirements", "exclude_newer", "python")
_WITHOUT_SANDBOX = "Or choose a variant that runs nothing: --variant single_llm or ps_fa."


class Annotator:
    """Annotates pairs; an asynchronous context manager that owns models, sandboxes and files while it is open.

    One `Annotator` belongs to one event loop. Apart from the sandboxes' own stores, nothing is written, printed or
    logged unless `run_dir`, `cache` or `on_event` ask for it. What goes wrong with a pair is `annotation.error`; what
    ends the run is raised.

    Args:
        model: a name (`gpt-4o-mini`, `heuristic`, `replay:FILE`), a LangChain `BaseChatModel`, anything with the two
            methods of `agent.llm.base.LLM`, a mapping of roles to those (key `default` for the rest), or a `Models`.
        sandbox: `auto`, `docker`, `bwrap`, or a `SandboxBackend` of your own (which you close yourself).
        variant: a name, a YAML file, a mapping or a `Variant`; `without` toggles nodes off.
        nodes: nodes to add, or to put in place of built-in ones, by name; a run's folder knows them by class and,
            where they have one, by their attribute `version`. So it does with languages.
        prompts: a folder whose templates replace the built-in ones of the same name.
        languages: languages to add, or to put in place of built-in ones.
        unsupported: what to do with pairs of other languages: `fail` before any call, `judge` without a test, `skip`.
        run_dir: a folder that keeps annotations and evidence, and from which the run goes on when it was interrupted.
        cache: a file that keeps model replies over runs, or a `ReplyCache` (which you close yourself).
        rounds: times each pair is annotated, each with samples of its own; `annotation.round` is its number.
        config: settings by their keys, those of `-c` on the command line, as in `{"sandbox.memory_mb": 512}`; or a
            `Config`. No file and no variable of the environment is read for them (`agent.read_settings` does).
        executions: results of programs that others with the same `sandbox` ran before, and a place for those of this.
        engine: `ray` has pairs annotated by workers on this machine's cores or, with `address`, on a Ray cluster.
        address: the cluster's, as in `auto` or `HOST:6379`.
        budget: what the run may cost, in dollars, all its starts in `run_dir` together; or a `Budget` that several
            `Annotator`s share, with its limits in place of those of `config`.
        on_event: called with each event of `agent.events`.

    Raises:
        UsageError: an argument is of a type that is not taken, or has a value that is none of its; names both.
    """

    def __init__(
        self,
        *,
        model: ModelSource = None,
        sandbox: str | SandboxBackend | None = None,
        variant: str | Path | Mapping[str, Any] | Variant | None = None,
        without: Sequence[str] = (),
        nodes: Mapping[str, Node] | None = None,
        prompts: Path | str | None = None,
        languages: Sequence[Language] = (),
        unsupported: Literal["fail", "judge", "skip"] = "fail",
        run_dir: Path | str | None = None,
        cache: Path | str | ReplyCache | None = None,
        retry_errors: bool = False,
        rounds: int | None = None,
        concurrency: int | Literal["auto"] | None = None,
        pair_timeout: float | None = None,
        config: Config | Mapping[str, Any] | None = None,
        executions: SharedExecutions | None = None,
        engine: Literal["local", "ray"] | None = None,
        address: str | None = None,
        budget: float | Budget | None = None,
        on_event: Callable[[Event], None] | None = None,
        **model_options: Any,
    ) -> None:
        check_all(locals())
        changes = {
            "runner.rounds": rounds,
            "runner.concurrency": concurrency,
            "runner.engine": engine,
            "runner.address": address,
            "runner.budget_usd": None if isinstance(budget, Budget) else budget,
            "pipeline.pair_timeout": pair_timeout,
            "sandbox.backend": sandbox if isinstance(sandbox, str) else None,
        }
        base = config if isinstance(config, Config) else configured(config or {})
        self._config = configured({key: value for key, value in changes.items() if value is not None}, base)
        self._models = Models.of(model, **model_options)
        known = known_roles({**BUILT_IN, **(nodes or {})})
        self._models.check(role.name for role in known)
        self._pipeline = build(variant or self._config.variant, without=tuple(without or ()), nodes=nodes)
        self._fallback = build("single_llm", nodes=nodes) if unsupported == "judge" else None
        for role in (*self._pipeline.roles, *(self._fallback.roles if self._fallback else ())):
            self._models.for_role(role)
        self._prompts = Prompts(None if prompts is None else Path(prompts), known)
        self._nodes = nodes or {}
        self._own_languages = {language_name(language.name): language for language in languages or ()}
        self._languages = {**built_in_languages(), **self._own_languages}
        self._unsupported = unsupported
        self._run_dir = None if run_dir is None else Path(run_dir)
        self._cache = cache
        self._retry_errors = retry_errors
        if executions is not None and self._config.runner.engine == "ray":
            raise UsageError("results of programs are shared within one process: leave out --engine ray (engine)")
        if self._config.runner.batch:
            check_possible(self._config.runner, self._models, self._run_dir, cache)
            executions = executions or SharedExecutions(ResultsOnDisk())
        self.transport: Transport | None = None  # how calls are sent, where it is neither at once nor by batches
        self._budget = budget if isinstance(budget, Budget) else None
        self._emit = on_event or (lambda _event: None)
        self._given_backend = None if isinstance(sandbox, str) or sandbox is None else sandbox
        self._backend: SandboxBackend | None = self._given_backend
        self._engine: RayEngine | None = None
        self._site = SandboxInfo()
        self._make_runner = partial(
            PairRunner,
            pipeline=self._pipeline,
            fallback=self._fallback,
            prompts=self._prompts,
            languages=self._languages,
            config=self._config,
            executions=executions,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tracer = tracer_for(self._config.tracing)
        self._productions: set[Production[Annotation]] = set()

    async def __aenter__(self) -> Self:
        """Make the sandbox ready.

        Raises:
            UsageError: it is open already.
            SandboxUnavailable: no sandbox can be had and the variant needs one.
            DeadlineReached: the time of the run is over.
        """
        if self._loop is not None:
            raise UsageError("this Annotator is open already; use one per event loop")
        self._open_cache = SqliteReplyCache(Path(self._cache)) if isinstance(self._cache, str | Path) else self._cache
        self._loop = asyncio.get_running_loop()
        self._own_budget = self._budget or Budget.of(self._config.runner)
        try:
            starts = self._config.runner.engine == "ray" or (self._pipeline.uses_sandbox and self._backend is None)
            async with self._own_budget.in_time() if starts else nullcontext():
                await self._make_ready()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """End all work in progress and close what this Annotator opened."""
        async with AsyncExitStack() as ends:  # whatever fails, the rest is closed
            ends.callback(setattr, self, "_loop", None)
            if isinstance(self._open_cache, SqliteReplyCache) and self._open_cache is not self._cache:
                ends.callback(self._open_cache.close)
            for model in self._models.all():
                ends.push_async_callback(close, model)
            if self._backend is not None and self._given_backend is None:
                ends.push_async_callback(self._backend.close)
                self._backend = None
            if self._engine is not None:
                ends.push_async_callback(self._engine.close)
                self._engine = None
            for production in self._productions:
                ends.push_async_callback(production.close)

    async def _make_ready(self) -> None:
        wanted = self._config.sandbox if self._pipeline.uses_sandbox and self._given_backend is None else None
        try:
            if self._config.runner.engine == "ray":
                tracing = self._config.tracing.model_copy(update={"otel": False})  # that is traced where the run is
                parts = (self._models, self._given_backend, wanted, tracing, self._make_runner)
                self._engine = RayEngine(self._config.runner, parts, self._emit)
                self._site = await self._engine.open()
                return
            if wanted is not None:
                self._backend = await choose(wanted, self._note)
                self._backend.listen(lambda what: self._emit(Waiting(what, AGAIN)))
            self._site = SandboxInfo.of(self._backend)
        except SandboxUnavailable as error:
            raise type(error)(f"{error}\n{_WITHOUT_SANDBOX}") from error

    def annotate(
        self,
        pairs: Pairs,
        *,
        mapping: Mapping[str, str] | str | None = None,
        ordered: bool = False,
        limit: int | None = None,
    ) -> Stream[Annotation]:
        """Return an iterator: an annotation for each pair and round, as they are ready or (`ordered`) in input order.

        Pairs are an iterable (it may be asynchronous) of `Pair` or of mappings with the fields of a line in a file of
        pairs; a DataFrame of pandas with such columns; or what `read_pairs` returns. `mapping` names fields that are
        called otherwise, as in `{"query": "question", "code": "snippet"}`.
        With `run_dir`, all pairs are read first, and those finished by an earlier run are given back as they were;
        `limit` annotates only the first ones of the run's input, so that a later call can go on with the rest. Pairs
        with the same query are taken one after another where the order is free: providers then reuse the prompt's
        beginning. Leaving the loop early, closing the iterator, cancelling the task that waits for it, or leaving the
        Annotator ends the calls and sandboxes in progress.

        Raises:
            UsageError: the Annotator is not open, was opened in another event loop, or is closed meanwhile; or the
                pairs are nothing of the above, or already read with another mapping.
            ConfigError: `mapping` is malformed, or names something that a pair does not have.
            InputError: an item holds no pair, two pairs have the same id (with `run_dir`), or a language is
                unsupported.
            RunStopped: the run cannot go on (account, outage, budget, deadline, disk); what is finished is kept.
        """
        if self._loop is None or self._loop is not asyncio.get_running_loop():
            raise UsageError("open the Annotator in this event loop first: async with Annotator(...) as annotator")
        check_type("ordered", ordered, (bool,), "True or False")
        check_type("limit", limit, (int,), "a number of pairs")
        if ordered and self._config.runner.batch:
            raise UsageError("with runner.batch annotations come as they are ready: ordered=False")
        if limit is not None and limit < 0:
            raise UsageError(f"limit={limit}: a run cannot be of fewer than 0 pairs")
        earlier = {each for each in self._productions if not each.over}
        annotations = self._annotations(pairs_of(pairs, mapping), ordered, limit, earlier)
        production = Production(annotations)
        self._productions = {*earlier, production}
        return Stream(production)

    async def _annotations(
        self,
        pairs: Iterable[Pair] | AsyncIterable[Pair],
        ordered: bool,
        limit: int | None,
        earlier: Set[Production[Annotation]],
    ) -> AsyncGenerator[Annotation, None]:
        for production in earlier:
            if production.left:  # it may still have the run's folder
                await production.end()
        if self._run_dir is not None:
            pairs = await Spool.of(pairs)
        if isinstance(pairs, Sequence):
            for pair in pairs.of_each_language() if isinstance(pairs, Spool) else pairs:
                self._check(pair)
        with ExitStack() as stack:
            job = self._job(pairs, ordered, limit, stack)
            self._emit(self._started(job))
            async with aclosing(job.annotations()) as annotations:
                async for annotation in annotations:
                    yield annotation

    def _job(
        self, pairs: Iterable[Pair] | AsyncIterable[Pair], ordered: bool, limit: int | None, stack: ExitStack
    ) -> Job:
        folder, batches, config = None, None, self._config.runner
        if self._run_dir is not None and isinstance(pairs, Spool):
            folder = stack.enter_context(self._open_folder(self._run_dir, pairs))
            if self._retry_errors and self._open_cache is not None:
                folder.forget_unusable(self._open_cache)
        before = (0.0, 0) if folder is None else (folder.spent_usd(self._models.price), folder.spent_tokens())
        budget = self._budget or self._own_budget.resumed(*before)
        if config.batch and folder is not None and isinstance(self._open_cache, SqliteReplyCache):
            given = (folder.path, self._models, self._open_cache, budget, self._emit)
            batches = Batches(*given, retry_errors=self._retry_errors)
            stack.callback(batches.close)
        limits = Limits(config, self._waiting, workers=1 if self._engine is None else self._engine.workers)
        runner = self._runner(folder, budget, limits, self.transport or batches)
        return Job(
            pairs,
            TracedRunner(runner, self._tracer, self._pipeline.variant.name),
            folder,
            config,
            budget=budget,
            batches=batches,
            at_once=limits.pairs,
            check=self._check,
            ordered=ordered,
            limit=limit,
            retry_errors=self._retry_errors,
        )

    def _runner(self, folder: RunFolder | None, budget: Budget, limits: Limits, transport: Transport | None) -> Runner:
        def on_reply(call: Call, reply: Reply) -> None:
            if folder is not None:
                folder.replied(call.role, reply)
            calls = limits.in_flight, limits.allowed
            self._emit(ReplyReceived(call.role, reply.model, reply.usage, reply.cached, *calls))

        gateway = Gateway(
            self._models,
            transport=transport,
            cache=self._open_cache,
            recall=None if folder is None else folder.answer,
            limits=limits,
            budget=budget,
            on_reply=on_reply,
            on_wait=self._waiting,
            tracer=self._tracer,
        )
        if self._engine is not None:
            return RayRunner(self._engine, gateway, (lambda _paid: None) if folder is None else folder.abandoned)
        return self._make_runner(gateway=gateway, backend=self._backend, listener=self._emit, tracer=self._tracer)

    def _open_folder(self, path: Path, pairs: Spool) -> RunFolder:
        cache = self._open_cache if isinstance(self._open_cache, SqliteReplyCache) else None
        folder = RunFolder(path, identity=self.identity(), pairs=pairs, environment=self.environment(), cache=cache)
        for note in folder.notes:
            self._note(note)
        return folder

    def identity(self) -> dict[str, Any]:
        """Return what a run folder is compared by: everything that decides labels, besides the input.

        Raises:
            UsageError: a requirements file cannot be read.
        """
        own = {"nodes": _versions(self._nodes), "languages": _versions(self._own_languages)}
        unnamed = {"pair_timeout", "sandbox_attempts"}
        return {
            "variant": self._pipeline.variant.model_dump(mode="json", exclude={"title", "paper"}),
            "model": self._models.identity(),
            "prompts": self._prompts.hashes(),
            "pipeline": self._config.pipeline.model_dump(mode="json", exclude=unnamed, exclude_none=True),
            "unsupported": self._unsupported,
            **_supplied(self._config.sandbox),
            **{name: versions for name, versions in own.items() if versions},
        }

    def environment(self) -> dict[str, Any]:
        """Return what a run folder records besides: versions, the sandbox and its limits, the models' servers."""
        site, servers = self._site, self._models.addresses()
        return {
            "versions": {name: version(name) for name in _RECORDED} | {"python": platform.python_version()},
            "sandbox": dict(site.described) or None,
            "limits": limit_settings(site.limits),
            **({"servers": servers} if servers else {}),
        }

    def _started(self, job: Job) -> RunStarted:
        rounds = self._config.runner.rounds
        if rounds > 1 and (doubt := independence(self._models.all())) is not None:
            self._note(doubt)
        if job.folder is not None and (there := job.folder.index.rounds) > rounds:
            self._note(f"of the run's {there} rounds this is about {rounds}; labels.jsonl goes by all of them")
        return RunStarted(job.total, job.finished, self._pipeline.variant.name, self._site.name, rounds)

    def _check(self, pair: Pair) -> None:
        if self._unsupported == "fail" and pair.language not in self._languages:
            known = ", ".join(sorted(self._languages))
            raise InputError(
                f"pair {pair.id!r}: no support for language {pair.language!r} (there is: {known}); "
                "judge such pairs without a test (--unsupported judge) or leave them out (--unsupported skip)"
            )

    def _waiting(self, what: str, seconds: float) -> None:
        self._emit(Waiting(what, seconds))

    def _note(self, message: str) -> None:
        self._emit(Note(message))


def _supplied(sandbox: SandboxConfig) -> dict[str, Any]:
    """What programs were given besides the defaults; a run without any is compared as ever."""
    given = sandbox.model_dump(mode="json", include=set(_SUPPLIED), exclude_defaults=True)
    if "requirements" in given:
        given["requirements"] = list(read_requirements(Path(given["requirements"])))
    return {"sandbox": given} if given else {}


def _versions(parts: Mapping[str, object]) -> dict[str, str]:
    """Identify parts of the user's among others of that name: by class and, where they have one, version."""
    kinds = {name: f"{type(part).__module__}.{type(part).__qualname__}" for name, part in parts.items()}
    versions = {name: getattr(part, "version", None) for name, part in parts.items()}
    return {name: kind if versions[name] is None else f"{kind} {versions[name]}" for name, kind in kinds.items()}
