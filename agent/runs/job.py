"""Carries out one call to `annotate`: orders pairs and rounds, annotates them and commits the results to the run."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from agent.datasets.pair_store import group_by_query
from agent.errors import Deferred, ModelError, NodeError, Outage, PairError, PairTimeout, SandboxError
from agent.llm.budget import Budget
from agent.pipeline.history import History, Recorder
from agent.runs.batches import Batches
from agent.runs.runner import Runner
from agent.runs.spec import RunSpec
from agent.runs.store.annotations import Key
from agent.runs.store.run_folder import RunFolder
from agent.streams import Put, iterate, run_concurrently
from agent.types import Annotation, Pair

_SANDBOX = "sandbox"
_WINDOW, _MIN_PAIRS, _MAX_SHARE = 100, 20, 0.8


def _list_names(*kinds: type[PairError]) -> frozenset[str]:
    return frozenset(error.__name__ for kind in kinds for error in (kind, *kind.__subclasses__()))


_SANDBOX_ERRORS = _list_names(SandboxError)
_MODEL_ERRORS = _list_names(ModelError, PairTimeout)


@dataclass(frozen=True)
class PairRound:
    """One pair in one round. It yields one annotation."""

    pair: Pair
    round: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """The key of the annotation."""
        return self.pair.id, self.round


class Job:
    """Annotates each pair in every round and commits the annotations to the run folder, if there is one.

    `total` is the number of annotations that the job returns (None if unknown). `finished` is the number of these that
    are already in the folder. If there is a run folder, `pairs` is its stored input. `concurrency` returns the current
    limit on the number of `PairRound`s in progress.
    """

    def __init__(
        self,
        spec: RunSpec,
        pairs: Iterable[Pair] | AsyncIterable[Pair],
        runner: Runner,
        folder: RunFolder | None,
        *,
        budget: Budget,
        concurrency: Callable[[], int],
        batches: Batches | None,
        ordered: bool,
        limit: int | None,
    ) -> None:
        self.folder = folder
        self._spec = spec
        self._rounds = spec.config.runner.rounds
        self._variant = spec.pipeline.variant.name
        self._pairs = pairs
        self._runner = runner
        self._budget = budget
        self._concurrency = concurrency
        self._batches = batches
        self._deferred = False
        self._failed = set[Key]()
        self._ordered = ordered
        self._limit = math.inf if limit is None else limit
        self._breaker = CircuitBreaker()
        self._listed = int(min(len(pairs), self._limit)) if isinstance(pairs, Sequence) else None
        self.total = None if self._listed is None else self._listed * self._rounds
        self.finished = 0 if folder is None else sum(map(self._is_requested, folder.index.iterate_keys()))

    async def annotate(self, put: Put[Annotation]) -> None:
        """Pass each annotation to `put`.

        With `ordered`, they are in input order. Otherwise, finished annotations in the run folder come first, and the
        others follow in completion order.
        """
        if self.folder is not None and not self._ordered and self.finished:
            for annotation in self.folder.annotations():
                if self._is_requested((annotation.id, annotation.round)):
                    await put(annotation)
        if self._batches is not None:
            await self._batches.wait_for_open_batches()
        while True:
            self._deferred = False
            results = run_concurrently(
                self._iterate_work(), self._annotate_pair, concurrency=self._concurrency, ordered=self._ordered
            )
            async with aclosing(results):
                async for result in results:
                    if result is not None:
                        await put(result)
            if self._batches is None or not self._deferred:
                return
            await self._batches.send_and_wait()

    def _is_finished(self, key: Key) -> bool:
        return self.folder is not None and self.folder.index.is_finished(key, retry_errors=self._spec.retry_errors)

    def _is_requested(self, key: Key) -> bool:
        """Whether an annotation in the folder is finished and belongs to this job's pairs and rounds."""
        assert self.folder is not None
        place = self.folder.input.place(key[0]) if key[1] < self._rounds else None
        return place is not None and place < self._limit and self._is_finished(key)

    async def _iterate_work(self) -> AsyncGenerator[PairRound, None]:
        """Iterate over the pairs and rounds of at most `limit` pairs. All rounds of a pair come in succession.

        In the next round of a pair, the provider's prompt cache then still contains the start of the pair's prompt. A
        run that stops early has finished all rounds of some pairs, rather than one round of all pairs.
        """
        pairs, remaining = self._pairs, self._limit
        if isinstance(pairs, Sequence) and not self._ordered:
            pairs = group_by_query(pairs, self._listed)
        async with aclosing(iterate(pairs)) as source:
            while remaining > 0 and (pair := await anext(source, None)) is not None:
                remaining -= 1
                for work in (PairRound(pair, number) for number in range(self._rounds)):
                    if self._ordered or not (work.key in self._failed or self._is_finished(work.key)):
                        yield work

    async def _annotate_pair(self, work: PairRound) -> Annotation | None:
        folder = self.folder
        if folder is not None and self._is_finished(work.key):
            annotation = folder.annotation(*work.key)
            if annotation is not None:
                return annotation
        self._spec.check_pair(work.pair)
        recorder, values = Recorder(work.pair), {"pair": work.pair.id, "round": work.round, "variant": self._variant}
        try:
            async with self._budget.enforce_deadline():
                with self._spec.tracer.span("pair", "pair", **values) as record:
                    annotation = await self._runner.annotate(work.pair, work.round, recorder)
                    error = annotation.error and annotation.error.type
                    record(label=annotation.label, decided_by=annotation.decided_by, error=error)
        except Deferred:
            self._deferred = True
            return None
        except BaseException:
            if folder is not None:
                folder.record_abandoned(recorder.history.model_calls)
            raise
        if folder is not None:
            folder.commit(annotation, recorder.history)
        if annotation.error is not None and self._batches is not None:
            self._failed.add(work.key)  # later passes of this session skip it
        self._breaker.count(annotation, recorder.history)
        return annotation


class CircuitBreaker:
    """Stops a run if most pairs end in the same error from a model, the sandbox or a user-defined node.

    For each role, the breaker considers the last 100 pairs that reached the role, if there are at least 20. The run
    stops if at least 80% of these pairs ended in the same type of error in that role. The sandbox and each node count
    as roles, too. Errors caused by a pair itself are ignored.
    """

    def __init__(self) -> None:
        self._errors: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=_WINDOW))

    def count(self, annotation: Annotation, history: History) -> None:
        """Count a finished pair.

        Raises:
            Outage: too many pairs ended in the same error as this pair.
        """
        called_roles = [model_call.role for model_call in history.model_calls]
        nodes = [f"node {node_run.node}" for node_run in history.node_runs]
        roles = {*called_roles, *nodes, *([_SANDBOX] if history.executions else [])}
        error, failed_role = annotation.error, ""
        kind = "" if error is None else error.type
        if kind in _SANDBOX_ERRORS:
            failed_role = _SANDBOX
        elif kind in _MODEL_ERRORS:
            failed_role = called_roles[-1] if called_roles else "model"
        elif kind == NodeError.__name__:
            failed_role = nodes[-1]
        for role in {*roles, failed_role} - {""}:
            self._errors[role].append(kind if role == failed_role else "")
        if error is None or not failed_role:
            return
        errors = self._errors[failed_role]
        equal = errors.count(kind)
        if len(errors) >= _MIN_PAIRS and equal >= _MAX_SHARE * len(errors):
            raise Outage(
                f"{error.message.rstrip('.')}. {equal} of the last {len(errors)} pairs that reached {failed_role!r} "
                f"ended in {kind}."
            )
