"""What it cost, and where the time went."""

from __future__ import annotations

from array import array
from collections import Counter
from statistics import median

from agent.nodes import BUILT_IN
from agent.report.charts import Block, Segment, bars, block, stacked, table
from agent.report.figures.base import Seen, duration, money
from agent.types import Usage


class Cost:
    """Calls, tokens and cost by the role that asked."""

    def __init__(self) -> None:
        self.usage = Usage()
        self._roles: dict[str, Usage] = {}
        self._cached: Counter[str] = Counter()
        self._problems: Counter[str] = Counter()
        self._without = 0

    def add(self, seen: Seen) -> None:
        """Take in one annotation."""
        self.usage += seen.annotation.usage
        if seen.evidence is None:
            self._without += 1
            return
        for exchange in seen.evidence.exchanges:
            self._roles[exchange.role] = self._roles.get(exchange.role, Usage()) + exchange.usage
            self._cached[exchange.role] += exchange.cached
            self._problems[exchange.role] += exchange.problem is not None

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
            f"{self._problems[role]:,}",
            f"{usage.input_tokens:,}",
            f"{usage.cached_input_tokens:,}",
            f"{usage.output_tokens:,}",
            money(usage.cost_usd),
        ]


def _tokens(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens


class Time:
    """Where the pairs' own time went: in which node, and in it to the model, to programs, to the rest."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._nodes: dict[str, array[float]] = {}
        self._model: dict[str, float] = {}
        self._programs = 0.0
        self._without = 0

    def add(self, seen: Seen) -> None:
        """Take in one annotation."""
        self.seconds += seen.annotation.seconds
        evidence = seen.evidence
        if evidence is None or not evidence.visits:
            self._without += seen.label != "error"
            return
        for visit in evidence.visits:
            self._nodes.setdefault(visit.node, array("d")).append(visit.seconds)
        for exchange in evidence.exchanges:
            # what the cache answered took its time in another run
            seconds = 0.0 if exchange.cached else exchange.seconds or 0.0
            self._model[exchange.role] = self._model.get(exchange.role, 0.0) + seconds
        self._programs += sum(run.seconds for run in evidence.executions if not run.shared)

    def blocks(self) -> list[Block]:
        """Return time by node; where none was noted, a word that says so."""
        if not self._nodes:
            return [block("Time by node", "This run was made before the time of each node was noted.")]
        parts = self._parts()
        rows = [
            (node, [Segment(name, seconds, colour, duration(seconds))
                    for (name, colour), seconds in zip(_PARTS.items(), parts[node], strict=True)])
            for node in self._nodes
        ]  # fmt: skip
        columns = {"node": False} | dict.fromkeys(("visits", "median", "all", *_PARTS), True)
        cells = [
            [node, f"{len(seconds):,}", duration(median(seconds)), duration(sum(seconds)), *map(duration, parts[node])]
            for node, seconds in self._nodes.items()
        ]
        text = (
            "The pairs' own seconds, added up: many pairs are worked on at once, so that the run took less. "
            "The rest is waiting for a sandbox, and installing."
        )
        if self._without:
            text += f" Of {self._without:,} annotations the time of each node was not noted."
        chart = stacked(rows, alt="Seconds by node.", unit="seconds, added up over pairs", legend=True)
        return [block("Time by node", text, chart, [table(columns, cells)])]

    def _parts(self) -> dict[str, tuple[float, float, float]]:
        """Return for each node the seconds for the model, for programs, and for the rest."""
        model, programs = dict(self._model), self._programs
        parts = {}
        for node, visits in self._nodes.items():
            total, role = sum(visits), getattr(BUILT_IN.get(node), "role", node)
            asking = min(total, model.get(role, 0.0))
            running = min(total - asking, programs) if getattr(BUILT_IN.get(node), "uses_sandbox", False) else 0.0
            # two nodes may ask in one role, and more than one may run programs: what one took is not another's
            model[role] = model.get(role, 0.0) - asking
            programs -= running
            parts[node] = (asking, running, total - asking - running)
        return parts


_PARTS = {"model": "accent", "programs": "good", "rest": "muted"}
