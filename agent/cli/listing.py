"""Lists the annotations of a run in input order, for `agent show RUN`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.table import Table
from rich.text import Text

from agent.cli.options import ListOptions
from agent.cli.text import Console, one_line, print_text
from agent.store.annotations import get_status
from agent.types import Annotation, Pair
from agent.wording import plural

_QUERY_WIDTH = 60


class Listing:
    """A page of the annotations that match `options`.

    `rows` contains each annotation on the page with its query. `total` counts the annotations on all pages.
    """

    def __init__(self, options: ListOptions) -> None:
        self.options = options
        self.total = 0
        self.rows: list[tuple[Annotation, str]] = []

    def add(self, pair: Pair, rounds: Iterable[Annotation]) -> None:
        """Add the annotations of a pair. Pairs must be added in input order."""
        first = (self.options.page - 1) * self.options.limit
        if (self.options.query or "").casefold() not in pair.query.casefold():
            return
        for annotation in filter(self._matches, rounds):
            if first <= self.total < first + self.options.limit:
                self.rows.append((annotation, pair.query))
            self.total += 1

    def _matches(self, annotation: Annotation) -> bool:
        label, status = self.options.label, self.options.status
        return (
            (label is None or label == ("null" if annotation.label is None else str(annotation.label)))
            and (not self.options.errors or annotation.error is not None)
            and (status is None or (annotation.test is not None and annotation.test.status.value == status))
        )

    def as_json(self) -> dict[str, Any]:
        """Return the page as JSON. `matches` counts the annotations on all pages."""
        return {
            "matches": self.total,
            "page": self.options.page,
            "pages": self._pages,
            "annotations_listed": [_row_as_json(*row) for row in self.rows],
        }

    @property
    def _pages(self) -> int:
        return -(-self.total // self.options.limit)

    def print(self) -> None:
        """Print the page as a table, and the option that shows the next page."""
        console = Console(piped_width=120)
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        rounds = any(annotation.round for annotation, _ in self.rows)
        for column in ("pair", *(["round"] if rounds else ()), "label", "decided by", "status", "query"):
            table.add_column(column, no_wrap=True, overflow="fold" if column == "pair" else "ellipsis")
        for annotation, query in self.rows:
            status = get_status(annotation.label, failed=annotation.error is not None)
            texts = ("-" if status == "undecided" else status, one_line(annotation.decided_by or "-", 30))
            pair = (one_line(annotation.id, 60), *([str(annotation.round)] if rounds else ()))
            table.add_row(*map(Text, (*pair, *texts, _describe_status(annotation), one_line(query, _QUERY_WIDTH))))
        if self.rows:
            console.print(table)
        page, total = self.options.page, plural(self.total, "annotation")
        if self._pages > 1 or page > 1:
            more = f". Next page: --page {page + 1}" if page < self._pages else ""
            print_text(console, f"\npage {page} of {self._pages}, {total} in total{more}")
        elif not self.rows:
            print_text(console, "no annotations match")


def _describe_status(annotation: Annotation) -> str:
    if annotation.error is not None:
        return one_line(annotation.error.type, 40)
    if annotation.test is not None:
        return annotation.test.outcome
    return "-" if annotation.simulated is None else f"simulated: {annotation.simulated.status}"


def _row_as_json(annotation: Annotation, query: str) -> dict[str, Any]:
    return {
        "id": annotation.id,
        "round": annotation.round,
        "label": annotation.label,
        "decided_by": annotation.decided_by,
        "status": None if annotation.test is None else annotation.test.status.value,
        "error": None if annotation.error is None else annotation.error.type,
        "query": query,
    }
