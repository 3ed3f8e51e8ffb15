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


@results.command()
def review(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    sample: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Review a random sample of N pairs [default: 100].")
    ] = None,
    stratify: Annotated[
        str | None, typer.Option(metavar="FIELD,…", help="Strata of the sample [default: decided_by,label].")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the sample [default: 0].")] = None,
    new_sample: Annotated[
        bool, typer.Option("--new-sample", help="Draw again, in place of an earlier sample.")
    ] = False,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            metavar="undecided|disputed|low-confidence", help="For cleaning: these pairs, not a sample. Repeatable."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Of the queue, only the first N pairs.")] = None,
    blind: Annotated[bool, typer.Option(help="Hide label and evidence until a review is committed.")] = True,
    reviewer: Annotated[str | None, typer.Option(metavar="NAME", help="Who reviews [default: your user name].")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page where there is a desktop.")] = True,
    as_json: AsJson = False,
) -> None:
    """Label pairs yourself, on a page that this machine alone can open. Without options: go on with the sample.

    A sample says how good the whole run is (`agent score RUN`); --queue finds the pairs that need a person. Reviews go
    to RUN/reviews.jsonl; annotations stay as they are. Ctrl-C ends it.
    """
    from agent.cli.review import Request, run
    from agent.review.queues import kinds_of
    from agent.review.sampling import Wanted

    by = None if stratify is None else tuple(name for part in stratify.split(",") if (name := part.strip()))
    run(
        Request(
            folder=run_folder,
            wanted=Wanted(size=sample, by=by, seed=seed),
            new_sample=new_sample,
            queues=kinds_of(queue or ()),
            limit=limit,
            reviewer=reviewer,
            blind=blind,
            port=port,
            browser=browser,
            as_json=as_json,
        )
    )
