"""The flow of one call of `annotate`: turns in order, work on each, what is finished into the folder."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from agent.config import RunnerConfig
from agent.datasets import group_by_query
from agent.history import Recorder
from agent.llm.budget import Budget
from agent.llm.gateway import CircuitBreaker
from agent.runner import Runner
from agent.store.run_folder import RunFolder
from agent.streams import completed, each
from agent.types import Annotation, Pair


@dataclass(frozen=True)
class Turn:
    """A pair in one round."""

    pair: Pair
    round: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """What its annotation is identified by."""
        return self.pair.id, self.round


class Job:
    """Takes pairs through a runner, each in every round, and commits them to the run's folder, where there is one.

    `total` is how many annotations there will be (None: not known), `finished` how many of them are there already, and
    `done` which ones the folder has. `at_once` says how many turns are in progress as
    things stand; `check` raises for a pair that is not to be annotated.
    """

    def __init__(
        self,
        pairs: Iterable[Pair] | AsyncIterable[Pair],
        runner: Runner,
        folder: RunFolder | None,
        config: RunnerConfig,
        *,
        budget: Budget,
        at_once: Callable[[], int],
        check: Callable[[Pair], None],
        ordered: bool,
        limit: int | None,
        retry_errors: bool,
    ) -> None:
        self._pairs = pairs
        self._runner = runner
        self._folder = folder
        self._config = config
        self._budget = budget
        self._at_once = at_once
        self._check = check
        self._ordered = ordered
        self._limit = limit
        self._breaker = CircuitBreaker()
        self.done = set() if folder is None else folder.done(retry_errors=retry_errors)
        self._listed: list[Turn] | None = None
        if isinstance(pairs, Sequence):
            wanted = pairs[:limit] if ordered else group_by_query(pairs[:limit])
            self._listed = [turn for pair in wanted for turn in self._turns(pair)]
        self._before = {turn.key for turn in self._listed or ()} & self.done
        self.total = None if self._listed is None else len(self._listed)
        self.finished = len(self._before)

    async def annotations(self) -> AsyncGenerator[Annotation, None]:
        """Yield the annotations, in the order of the pairs or as they are ready: first those that are finished."""
        turns = self._listed
        if self._folder is not None and turns is not None and not self._ordered:
            for annotation in self._folder.annotations():
                if (annotation.id, annotation.round) in self._before:
                    yield annotation
            turns = [turn for turn in turns if turn.key not in self._before]
        of = self._each_turn() if turns is None else turns
        async with aclosing(completed(of, self._work, concurrency=self._at_once, ordered=self._ordered)) as annotations:
            async for annotation in annotations:
                yield annotation

    def _turns(self, pair: Pair) -> list[Turn]:
        """Return a pair in each round, one after another.

        So the provider has the beginning of a pair's prompt at hand from the round before, and what is there when a run
        stops early are pairs with all of their rounds, rather than one round of all pairs.
        """
        return [Turn(pair, number) for number in range(self._config.rounds)]

    async def _each_turn(self) -> AsyncGenerator[Turn, None]:
        """Yield the turns of pairs that come one by one; no more than `limit` of them are asked for."""
        left = math.inf if self._limit is None else self._limit
        async with aclosing(each(self._pairs)) as coming:
            while left > 0 and (pair := await anext(coming, None)) is not None:
                left -= 1
                for turn in self._turns(pair):
                    yield turn

    async def _work(self, turn: Turn) -> Annotation:
        folder = self._folder
        if folder is not None and turn.key in self.done and (found := folder.annotation(*turn.key)) is not None:
            return found
        self._check(turn.pair)
        recorder = Recorder(turn.pair)
        try:
            async with self._budget.in_time():
                annotation = await self._runner.annotate(turn.pair, turn.round, recorder)
        except BaseException:
            if folder is not None:
                folder.abandoned(recorder.history.exchanges)
            raise
        if folder is not None:
            folder.commit(annotation, recorder.history)
        self._breaker.finished(annotation, recorder.history)
        return annotation
