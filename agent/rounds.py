"""What is to be done: each pair once in every round."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Set
from contextlib import aclosing
from dataclasses import dataclass

from agent.types import Pair


@dataclass(frozen=True)
class Turn:
    """A pair in one round."""

    pair: Pair
    round: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """What its annotation is identified by."""
        return self.pair.id, self.round


def turns(pairs: Iterable[Pair], rounds: int) -> list[Turn]:
    """Return each pair in each round, the rounds of a pair one after another.

    So the provider has the beginning of a pair's prompt at hand from the round before, and what is there when a run
    stops early are pairs with all of their rounds, rather than one round of all pairs.
    """
    return [Turn(pair, number) for pair in pairs for number in range(rounds)]


async def each_turn(
    pairs: Iterable[Pair] | AsyncIterable[Pair], rounds: int, limit: int | None = None
) -> AsyncGenerator[Turn, None]:
    """Yield what `turns` returns, for pairs that come one by one; no more than `limit` of them are asked for."""
    left = math.inf if limit is None else limit
    async with aclosing(each(pairs)) as source:
        while left > 0 and (pair := await anext(source, None)) is not None:
            left -= 1
            for turn in turns([pair], rounds):
                yield turn


async def each(pairs: Iterable[Pair] | AsyncIterable[Pair]) -> AsyncGenerator[Pair, None]:
    """Yield pairs from either kind of source."""
    if isinstance(pairs, AsyncIterable):
        async for pair in pairs:
            yield pair
    else:
        for pair in pairs:
            yield pair


def finished(work: Iterable[Turn], done: Set[tuple[str, int]]) -> int:
    """Return how many turns were taken before."""
    return sum(turn.key in done for turn in work)
