"""Declares the commands that read finished runs and labels; what they do is imported when they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

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
def report(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, or an ablation's.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file [default: report.html in RUN].")] = None,
    gold: Annotated[Path | None, typer.Option(metavar="GOLD", help="People's labels: scores and calibration.")] = None,
    evidence: Annotated[
        Literal["all", "tested", "none"], typer.Option(help="Of which pairs prompts, programs and outputs go in.")
    ] = "all",
    max_mb: Annotated[float, typer.Option("--max-mb", min=2, help="As much evidence as fits into so many MB.")] = 15.0,
    as_json: AsJson = False,
) -> None:
    """Write one HTML file that opens without network: figures, and every pair to search, filter and open."""
    from agent.cli.report import run

    run(run_folder, out=out, gold=gold, kept=evidence, max_mb=max_mb, as_json=as_json)
