"""How reproducible a run is: the share of its executions that end as they did."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from agent.errors import ExtraMissing
from agent.replay.replayer import NotRun, Replayed
from agent.stats.intervals import wilson


@dataclass(frozen=True)
class Reproducibility:
    """What came of replaying executions: `same` and `different` count those that could be run.

    `share` is that of `pairs_same` among `pairs_replayed`, None when there are none: of a pair, every round that could
    be run must have ended as it did. `low` and `high` are its Wilson 95% interval, None without the extra `stats`:
    over pairs, since the rounds of one are not independent. `flaky` and `only_messages` count among the `different`.
    """

    pairs_replayed: int
    pairs_same: int
    same: int
    different: int
    flaky: int
    only_messages: int
    not_run: dict[str, int]
    share: float | None
    low: float | None
    high: float | None

    @property
    def replayed(self) -> int:
        """How many could be run."""
        return self.same + self.different


class Tally:
    """Counts what became of executions one by one; keeps those that did not end as they did."""

    def __init__(self) -> None:
        self.different: list[Replayed] = []
        self.not_run: list[NotRun] = []
        self.same = 0
        self._pairs: dict[str, bool] = {}

    def add(self, found: Replayed | NotRun) -> None:
        """Count one."""
        if isinstance(found, NotRun):
            self.not_run.append(found)
            return
        self._pairs[found.id] = found.same and self._pairs.get(found.id, True)
        if found.same:
            self.same += 1
        else:
            self.different.append(found)

    def summary(self) -> Reproducibility:
        """Return the counts so far."""
        pairs, alike = len(self._pairs), sum(self._pairs.values())
        low, high = _interval(alike, pairs)
        return Reproducibility(
            pairs_replayed=pairs,
            pairs_same=alike,
            same=self.same,
            different=len(self.different),
            flaky=sum(each.cause == "flaky" for each in self.different),
            only_messages=sum({one.kind for one in each.differences} == {"message"} for each in self.different),
            not_run=dict(Counter(each.error.type for each in self.not_run).most_common()),
            share=alike / pairs if pairs else None,
            low=low,
            high=high,
        )


def _interval(same: int, total: int) -> tuple[float | None, float | None]:
    if not total:
        return None, None
    try:
        found = wilson(same, total)
    except ExtraMissing:
        return None, None
    return found.low, found.high
