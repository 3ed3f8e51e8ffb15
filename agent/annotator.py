"""The asynchronous Python interface: annotate pairs inside a running event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Set
from contextlib import AsyncExitStack, aclosing
from typing import Any, Self, Unpack

from agent.datasets.fields import Pairs, as_pairs
from agent.errors import UsageError
from agent.runs.run import Run
from agent.runs.spec import AnnotatorOptions, RunSpec
from agent.streams import BackgroundIterator, Stream
from agent.types import Annotation, check_type


class Annotator:
    """Annotates pairs. An asynchronous context manager that owns models, sandboxes and files while it is open.

    Use one `Annotator` per event loop. It prints nothing and logs only to the `agent` logger. It writes files only to
    `run_dir`, `cache` and the folders that store sandbox environments. An error that affects only one pair is recorded
    in `annotation.error`. An error that ends the run is raised.

    Args:
        model: a name (`gpt-4o-mini`, `heuristic`, `replay:FILE`), a LangChain `BaseChatModel`, or an object with the
            two methods of `agent.llm.base.LLM`. It can also be a `Models` object, or a mapping from roles to any of the
            above (the `default` key applies to all other roles).
        sandbox: `auto`, `docker`, `bwrap`, or your own `SandboxBackend`, which you must close yourself.
        variant: a name, a YAML file, a mapping or a `Variant`.
        without: names of the nodes to toggle off.
        nodes: a mapping from names to nodes that are added to the built-in nodes or replace them. The run identity
            contains the class of each node and its `version` attribute, if it has one.
        prompts: a folder with templates that replace the built-in templates with the same names.
        languages: languages that are added to the built-in languages or replace them. The run identity contains their
            classes and versions in the same way as for nodes.
        unsupported: what to do with pairs in unsupported languages: `fail` before any model call, `judge` them without
            a test, or `skip` them.
        run_dir: a folder for annotations and evidence. An interrupted run resumes from this folder.
        cache: a file that caches model replies across runs, or a `ReplyCache`, which you must close yourself.
        retry_errors: annotate a pair again if its annotation in `run_dir` has an error.
        rounds: number of annotations per pair. Each round uses new samples from the model; see `annotation.round`.
        concurrency: maximum number of pairs in progress, or `auto` to adapt this number to the model server.
        pair_timeout: total time limit for each pair, in seconds.
        config: a `Config`, or a mapping such as `{"sandbox.memory_mb": 512}`, with the same keys as the `-c`
            command-line option. Settings files and environment variables are ignored; to use them, pass the result of
            `agent.read_settings`.
        executions: execution results to share with other `Annotator`s that use the same `sandbox`.
        engine: `local`, or `ray` to annotate in Ray workers. The workers run on this machine or, if `address` is set,
            on the cluster at that address.
        address: address of the Ray cluster, such as `auto` or `HOST:6379`.
        budget: maximum total cost, in US dollars, of all sessions in `run_dir`. It can also be a `Budget` that several
            `Annotator`s share. The limits of a `Budget` override the limits in `config`.
        on_event: called with each event of `agent.events`.

    For models that are chosen by name, the arguments of `ModelOptions` are accepted as well.

    Raises:
        UsageError: an argument has a wrong type or value. The message names the argument and its valid values.
    """

    def __init__(self, **options: Unpack[AnnotatorOptions]) -> None:
        self.spec = RunSpec.of(options)
        self._run: Run | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._background: set[BackgroundIterator[Annotation]] = set()

    async def __aenter__(self) -> Self:
        """Open models and sandboxes.

        Raises:
            UsageError: the `Annotator` is already open.
            SandboxUnavailable: the variant needs a sandbox, but none is available.
            DeadlineReached: the deadline has passed.
        """
        if self._run is not None:
            raise UsageError("this Annotator is already open; use one per event loop")
        self._run, self._loop = Run(self.spec), asyncio.get_running_loop()
        try:
            await self._run.__aenter__()
        except BaseException:
            self._run = None
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Cancel all work in progress and close everything that this Annotator opened."""
        run, self._run = self._run, None
        async with AsyncExitStack() as stack:  # closes the rest even if one part fails
            if run is not None:
                stack.push_async_exit(run)
            for production in self._background:
                stack.push_async_callback(production.close)

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
        run = self._run
        if run is None or self._loop is not asyncio.get_running_loop():
            raise UsageError("open the Annotator in this event loop first: async with Annotator(...) as annotator")
        check_type("ordered", ordered, (bool,), "True or False")
        check_type("limit", limit, (int,), "a number of pairs")
        if ordered and self.spec.config.runner.batch:
            raise UsageError("runner.batch returns annotations in completion order; pass ordered=False")
        if limit is not None and limit < 0:
            raise UsageError(f"limit={limit}: limit must be 0 or greater")
        earlier = {production for production in self._background if not production.is_finished}
        annotations = run.annotate(as_pairs(pairs, mapping), ordered=ordered, limit=limit)
        production = BackgroundIterator(_wait_for_earlier(earlier, annotations))
        self._background = {*earlier, production}
        return Stream(production)

    def identity(self) -> dict[str, Any]:
        """Return the run identity: everything that affects labels, except the input.

        Raises:
            UsageError: a requirements file cannot be read.
        """
        return self.spec.identity()

    def environment(self) -> dict[str, Any]:
        """Return the environment that run folders record: versions, sandbox, limits and model servers."""
        return (self._run or Run(self.spec)).environment()


async def _wait_for_earlier(
    earlier: Set[BackgroundIterator[Annotation]], annotations: AsyncGenerator[Annotation, None]
) -> AsyncGenerator[Annotation, None]:
    """Wait for abandoned iterators, which may still use the run folder, and then iterate over the annotations."""
    async with aclosing(annotations):
        for production in earlier:
            if production.abandoned:
                await production.wait_until_done()
        async for annotation in annotations:
            yield annotation
