"""The Python interface: annotate pairs as they come, in a running event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence, Set
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any, Literal, Self

from agent.checks import check_type
from agent.config import Config
from agent.datasets import Pairs, pairs_of
from agent.errors import UsageError
from agent.events import Event
from agent.graph import Variant
from agent.languages import Language
from agent.llm.budget import Budget
from agent.llm.gateway import ReplyCache
from agent.llm.models import ModelSource
from agent.run import Run
from agent.sandbox.base import SandboxBackend
from agent.sandbox.session import SharedExecutions
from agent.spec import RunSpec
from agent.state import Node
from agent.streams import Production, Stream
from agent.types import Annotation


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
        arguments = locals().copy()  # a debugger may add to the original
        del arguments["self"], arguments["model_options"]
        self.spec = RunSpec.of(arguments, model_options)
        self._run: Run | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._productions: set[Production[Annotation]] = set()

    async def __aenter__(self) -> Self:
        """Make the sandbox ready.

        Raises:
            UsageError: it is open already.
            SandboxUnavailable: no sandbox can be had and the variant needs one.
            DeadlineReached: the time of the run is over.
        """
        if self._run is not None:
            raise UsageError("this Annotator is open already; use one per event loop")
        self._run, self._loop = Run(self.spec), asyncio.get_running_loop()
        try:
            await self._run.__aenter__()
        except BaseException:
            self._run = None
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """End all work in progress and close what this Annotator opened."""
        run, self._run = self._run, None
        async with AsyncExitStack() as stack:  # whatever fails, the rest is closed
            if run is not None:
                stack.push_async_exit(run)
            for production in self._productions:
                stack.push_async_callback(production.close)

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
        run = self._run
        if run is None or self._loop is not asyncio.get_running_loop():
            raise UsageError("open the Annotator in this event loop first: async with Annotator(...) as annotator")
        check_type("ordered", ordered, (bool,), "True or False")
        check_type("limit", limit, (int,), "a number of pairs")
        if ordered and self.spec.config.runner.batch:
            raise UsageError("with runner.batch annotations come as they are ready: ordered=False")
        if limit is not None and limit < 0:
            raise UsageError(f"limit={limit}: a run cannot be of fewer than 0 pairs")
        earlier = {each for each in self._productions if not each.is_finished}
        annotations = run.annotate(pairs_of(pairs, mapping), ordered=ordered, limit=limit)
        production = Production(_wait_for_earlier(earlier, annotations))
        self._productions = {*earlier, production}
        return Stream(production)

    def identity(self) -> dict[str, Any]:
        """Return everything that decides labels, besides the input: a run folder is compared by it.

        Raises:
            UsageError: a requirements file cannot be read.
        """
        return self.spec.identity()

    def environment(self) -> dict[str, Any]:
        """Return what a run folder records besides: versions, the sandbox and its limits, the models' servers."""
        return (self._run or Run(self.spec)).environment()


async def _wait_for_earlier(
    earlier: Set[Production[Annotation]], annotations: AsyncGenerator[Annotation, None]
) -> AsyncGenerator[Annotation, None]:
    """Yield annotations once earlier iterators that were left have ended: they may still use the run's folder."""
    async with aclosing(annotations):
        for production in earlier:
            if production.abandoned:
                await production.wait_until_done()
        async for annotation in annotations:
            yield annotation
