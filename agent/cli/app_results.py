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
