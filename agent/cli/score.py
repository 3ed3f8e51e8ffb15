"""`agent score`: what labels are worth, against gold and among annotators."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import typer

from agent.cli.console import Console
from agent.cli.score_tables import LEGEND, tables
from agent.cli.text import say
from agent.evaluation.estimates import Words
from agent.evaluation.scoring import Settings, report


def run(
    labels: Sequence[Path],
    gold: Path | None,
    *,
    round: int | None,
    reviews: Words,
    seed: int,
    resamples: int,
    as_json: bool,
) -> None:
    """Print scores, agreement and breakdowns.

    Raises:
        UsageError: something cannot be read, or there is nothing to compare.
    """
    settings = Settings(seed=seed, resamples=resamples)
    with Console(stderr=True).status("scoring"):
        found = report(labels, gold, round=round, reviews=reviews, settings=settings)
    if as_json:
        # in ASCII, which every terminal and pipe takes
        typer.echo(json.dumps(json.loads(found.model_dump_json(by_alias=True))))
        return
    console = Console()
    for title, table in tables(found):
        say(console, title, style="bold")
        console.print(table)
        console.print()
    say(console, LEGEND)
    for note in found.notes:
        say(console, f"note: {note}")
