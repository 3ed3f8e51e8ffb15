"""Declares the commands that read finished runs and labels; what they do is imported when they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.options import AsJson

results = typer.Typer()


@results.command()
def show(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    pair_id: Annotated[str | None, typer.Argument(metavar="ID", help="A pair's id; none: the run's summary.")] = None,
    prompts: Annotated[bool, typer.Option(help="Print the prompts too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Tell one pair's story: query, code, replies, program, cases, repairs, label."""
    from agent.cli.show import run

    run(run_folder, pair_id, prompts=prompts, as_json=as_json)


@results.command()
def score(
    labels: Annotated[
        list[Path],
        typer.Argument(
            metavar="LABELS...", help="Runs' folders, or files of anybody's labels: id and label, or votes."
        ),
    ],
    gold: Annotated[
        Path | None, typer.Option(metavar="GOLD", help="A file of id and right label; none: only agreement is told.")
    ] = None,
    round: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="One round of a run of several [default: their majority].")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap.")] = 0,
    resamples: Annotated[int, typer.Option(min=100, help="How often the bootstrap draws.")] = 2000,
    as_json: AsJson = False,
) -> None:
    """Score labels against gold, and annotators against each other, with intervals."""
    from agent.cli.score import run

    run(labels, gold, round=round, seed=seed, resamples=resamples, as_json=as_json)
