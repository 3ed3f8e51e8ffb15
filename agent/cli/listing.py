"""The pairs of a run in the order of its input, filtered and by pages: for `agent show RUN`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table
from rich.text import Text

from agent.cli.options import ListOptions
from agent.cli.text import Console, one_line, say
from agent.store.annotations import Key, ended
from agent.store.run_view import RunView
from agent.types import Annotation
from agent.wording import counted

_PIPED_WIDTH = 120
_QUERY_WIDTH = 60


@dataclass
class Listing:
    """The page of a run's annotations that `options` ask for; `add` them all, then `read`."""

    options: ListOptions
    total: int = 0
    rows: list[tuple[Annotation, str]] = field(default_factory=list)
    """The annotations on the page, each with its query."""
    _rounds: int = 0
    _found: set[Key] = field(default_factory=set)

    def add(self, annotation: Annotation) -> None:
        """Take an annotation in where it is one of those asked for."""
        label, status = self.options.label, self.options.status
        self._rounds = max(self._rounds, annotation.round + 1)
        if self.options.narrows() and (
            (label is None or label == ("null" if annotation.label is None else str(annotation.label)))
            and (not self.options.errors or annotation.error is not None)
            and (status is None or (annotation.test is not None and annotation.test.status.value == status))
        ):
            self._found.add((annotation.id, annotation.round))

    def read(self, view: RunView) -> None:
        """Find those on the page, in the order of the input and of the rounds."""
        first = (self.options.page - 1) * self.options.limit
        wanted = (self.options.query or "").casefold()
        keys = self._found if self.options.narrows() else view.index
        for pair in view.pairs():
            for number in range(self._rounds if wanted in pair.query.casefold() else 0):
                if (pair.id, number) not in keys:
                    continue
                if first <= self.total < first + self.options.limit:
                    annotation = view.annotation(pair.id, number)
                    self.rows += [] if annotation is None else [(annotation, pair.query)]
                self.total += 1

    @property
    def pages(self) -> int:
        """How many pages there are."""
        return -(-self.total // self.options.limit)

    def as_json(self) -> dict[str, Any]:
        """Return page and rows for programs; `matches` counts the annotations of all pages."""
        return {
            "matches": self.total,
            "page": self.options.page,
            "pages": self.pages,
            "annotations_listed": [_row(*each) for each in self.rows],
        }

    def print(self) -> None:
        """Print the page as a table, and how to see the others."""
        console = Console() if sys.stdout.isatty() else Console(width=_PIPED_WIDTH)
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        rounds = any(annotation.round for annotation, _ in self.rows)
        for column in ("pair", *(["round"] if rounds else ()), "label", "decided by", "status", "query"):
            table.add_column(column, no_wrap=True, overflow="fold" if column == "pair" else "ellipsis")
        for annotation, query in self.rows:
            label = {"undecided": "-"}.get(name := ended(annotation.label, failed=annotation.error is not None), name)
            texts = (label, one_line(annotation.decided_by or "-", 30), _status(annotation))
            pair = (one_line(annotation.id, 60), *([str(annotation.round)] if rounds else ()))
            table.add_row(*map(Text, (*pair, *texts, one_line(query, _QUERY_WIDTH))))
        if self.rows:
            console.print(table)
        page, what = self.options.page, counted(self.total, "annotation")
        if self.pages > 1 or page > 1:
            more = f"; the next: --page {page + 1}" if page < self.pages else ""
            say(console, f"\npage {page} of {self.pages}, {what} in all{more}")
        elif not self.rows:
            say(console, "no annotation is like that")


def _status(annotation: Annotation) -> str:
    if annotation.error is not None:
        return one_line(annotation.error.type, 40)
    if annotation.test is not None:
        return annotation.test.outcome
    return "-" if annotation.simulated is None else f"simulated: {annotation.simulated.status}"


def _row(annotation: Annotation, query: str) -> dict[str, Any]:
    return {
        "id": annotation.id,
        "round": annotation.round,
        "label": annotation.label,
        "decided_by": annotation.decided_by,
        "status": None if annotation.test is None else annotation.test.status.value,
        "error": None if annotation.error is None else annotation.error.type,
        "query": query,
    }
