"""One line for each pair of a small run: the path it took."""

from __future__ import annotations

from collections.abc import Set

from rich.table import Table
from rich.text import Text

from agent.cli.text import one_line
from agent.store.run_view import RunView
from agent.views.story import path

MOST_PAIRS = 40


def table(view: RunView, wanted: Set[tuple[str, int]]) -> Table:
    """Return these pairs and rounds of a run with label, who decided and path."""
    found = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    rounds = any(number for _, number in wanted)
    for column in ("pair", *(["round"] if rounds else ()), "label", "decided by", "path"):
        found.add_column(column, no_wrap=column != "path")
    for annotation in view.annotations():
        if (annotation.id, annotation.round) not in wanted:
            continue
        label = "error" if annotation.error else "-" if annotation.label is None else str(annotation.label)
        stages = path(annotation, view.evidence(annotation.id, annotation.round))
        pair = (one_line(annotation.id, 30), *([str(annotation.round)] if rounds else ()))
        way = " → ".join(one_line(stage, 120) for stage in stages)
        found.add_row(*map(Text, (*pair, label, one_line(annotation.decided_by or "-", 30), way)))
    return found
