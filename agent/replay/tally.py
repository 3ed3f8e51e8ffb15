"""How reproducible a run is: the share of its executions that end as they did."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from agent.errors import ExtraMissing
from agent.replay.replayer import NotRun, Replayed
from agent.stats.intervals import wilson


@dataclass(frozen=True)
class Reproducibility:
    """What came of replaying executions. `share` is `same` of those that could be run; None when none could.

    `low` and `high` are Wilson's 95% interval of the share, None without the extra `stats`. `flaky` and
    `only_messages` count among the `different`.
    """

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

    def add(self, found: Replayed | NotRun) -> None:
        """Count one."""
        if isinstance(found, NotRun):
            self.not_run.append(found)
        elif found.same:
            self.same += 1
        else:
            self.different.append(found)

    def summary(self) -> Reproducibility:
        """Return the counts so far."""
        total = self.same + len(self.different)
        low, high = _interval(self.same, total)
        return Reproducibility(
            same=self.same,
            different=len(self.different),
            flaky=sum(each.cause == "flaky" for each in self.different),
            only_messages=sum({one.kind for one in each.differences} == {"message"} for each in self.different),
            not_run=dict(Counter(each.error.type for each in self.not_run).most_common()),
            share=self.same / total if total else None,
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
