"""What it cost, and where the time went."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from statistics import median

from agent.history import Exchange, Execution, Visit
from agent.types import Usage
from agent.views.charts import Block, Segment, bars, block, stacked, table
from agent.views.figures.base import Seen, duration, money
from agent.wording import counted


class Cost:
    """Calls, tokens and cost by the role that asked."""

    def __init__(self) -> None:
        self.usage = Usage()
        self._roles: dict[str, Usage] = {}
        self._cached: Counter[str] = Counter()
        self._again: Counter[str] = Counter()
        self._without = 0

    def add(self, seen: Seen) -> None:
        """Take in one annotation."""
        self.usage += seen.annotation.usage
        if seen.evidence is None:
            self._without += 1
            return
        for exchange, again in zip(seen.evidence.exchanges, seen.evidence.asked_again(), strict=True):
            self._roles[exchange.role] = self._roles.get(exchange.role, Usage()) + exchange.usage
            self._cached[exchange.role] += exchange.cached
            self._again[exchange.role] += again

    def blocks(self) -> list[Block]:
        """Return cost by role; tokens where a price is not known."""
        if not self._roles:
            return []
        priced = all(usage.cost_usd is not None for usage in self._roles.values())
        costs = priced and any(usage.cost_usd for usage in self._roles.values())
        values = [
            (role, usage.cost_usd or 0.0, money(usage.cost_usd))
            if costs
            else (role, float(_tokens(usage)), f"{_tokens(usage):,}")
            for role, usage in self._roles.items()
        ]
        columns = {"node": False} | dict.fromkeys(
            ("calls paid", "from the cache", "asked again", "tokens in", "of these cached", "tokens out", "cost"), True
        )
        rows = [self._row(role, usage) for role, usage in self._roles.items()]
        text = "" if priced else "The price of a model is not known, so that its cost is not either: tokens are drawn. "
        text += f"Of {self._without:,} annotations no evidence is kept: they are not in here." if self._without else ""
        unit = "US dollars" if costs else "tokens, in and out"
        chart = bars(values, alt=f"{unit} by node.", unit=unit) if any(value for _, value, _ in values) else None
        return [block("Cost by node", text, chart, [table(columns, rows)])]

    def _row(self, role: str, usage: Usage) -> list[str]:
        return [
            role,
            f"{usage.calls:,}",
            f"{self._cached[role]:,}",
            f"{self._again[role]:,}",
            f"{usage.input_tokens:,}",
            f"{usage.cached_input_tokens:,}",
            f"{usage.output_tokens:,}",
            money(usage.cost_usd),
        ]


def _tokens(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens


@dataclass
class _Node:
    """The seconds of a node's visits, and what of all of them went to the model and to programs."""

    visits: array[float] = field(default_factory=lambda: array("d"))
    model: float = 0.0
    programs: float = 0.0

    def parts(self) -> tuple[float, float, float]:
        """Return the seconds for the model, for programs, and for the rest."""
        # sums of rounded times may differ by a little
        return self.model, self.programs, max(0.0, sum(self.visits) - self.model - self.programs)


class Time:
    """Where the pairs' own time went: in which node, and in it to the model, to programs, to the rest."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._nodes: dict[str, _Node] = {}
        self._without = 0

    def add(self, seen: Seen) -> None:
        """Take in one annotation."""
        self.seconds += seen.annotation.seconds
        evidence = seen.evidence
        if evidence is None or not evidence.visits:
            self._without += seen.label != "error"
            return
        model = programs = 0.0
        for event in evidence.events:
            # what the cache answered, or another pair's run, took its time elsewhere
            if isinstance(event, Exchange) and not event.cached:
                model += event.seconds or 0.0
            elif isinstance(event, Execution) and not event.shared:
                programs += event.seconds
            elif isinstance(event, Visit):
                node = self._nodes.setdefault(event.node, _Node())
                node.visits.append(event.seconds)
                node.model += model
                node.programs += programs
                model = programs = 0.0

    def blocks(self) -> list[Block]:
        """Return time by node; where none was noted, a word that says so."""
        if not self._nodes:
            return [block("Time by node", "No node came to its end.")]
        rows = [
            (name, [Segment(part, seconds, colour, duration(seconds))
                    for (part, colour), seconds in zip(_PARTS.items(), node.parts(), strict=True)])
            for name, node in self._nodes.items()
        ]  # fmt: skip
        columns = {"node": False} | dict.fromkeys(("visits", "median", "all", *_PARTS), True)
        cells = [
            [name, f"{len(node.visits):,}", *map(duration, (median(node.visits), sum(node.visits), *node.parts()))]
            for name, node in self._nodes.items()
        ]
        text = (
            "The pairs' own seconds, added up: many pairs are worked on at once, so that the run took less. "
            "Model is the time of calls that were made, programs that of all their runs. The rest is waiting for a "
            "turn or a sandbox, installing, and the work between."
        )
        if self._without:
            text += f" Of {counted(self._without, 'annotation')} the time of each node was not noted."
        chart = stacked(rows, alt="Seconds by node.", unit="seconds, added up over pairs", legend=True)
        return [block("Time by node", text, chart, [table(columns, cells)])]


_PARTS = {"model": "accent", "programs": "good", "rest": "muted"}
