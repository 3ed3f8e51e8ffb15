"""Declares the commands that read finished runs and labels; what they do is imported when they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from agent.cli.options import AsJson, Image, MountRo, Python, RecordedSandbox, RunFolder, Settings

results = typer.Typer()


@results.command()
def show(
    run_folder: RunFolder,
    pair_id: Annotated[str | None, typer.Argument(metavar="ID", help="A pair's id; none: the run's summary.")] = None,
    prompts: Annotated[
        bool, typer.Option(help="Print the prompts too, and replies with the programs in them.")
    ] = False,
    number: Annotated[
        int | None, typer.Option("--round", min=0, metavar="N", help="Only this round, of a run with several.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell one pair's story in its order: query, code, replies, program, cases, repairs, label.

    In colours on a terminal, unless NO_COLOR is set; to page it in colours: FORCE_COLOR=1 agent show RUN ID | less -R
    """
    from agent.cli.show import run

    run(run_folder, pair_id, round=number, prompts=prompts, as_json=as_json)


@results.command()
def replay(
    run_folder: RunFolder,
    pair_id: Annotated[str | None, typer.Argument(metavar="ID", help="A pair's id; none: with --all.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Replay every pair that was executed.")] = False,
    sample: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="With --all: a random sample of N pairs.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The sample's seed.")] = 0,
    execution: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Which of the pair's executions [default: the last].")
    ] = None,
    number: Annotated[
        int | None, typer.Option("--round", min=0, metavar="N", help="Which round [default: the first].")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Executions at once.")] = 4,
    sandbox: RecordedSandbox = None,
    image: Image = None,
    memory: Annotated[
        int | None, typer.Option(min=64, metavar="MB", help="What one sandbox may use [default: as in the run].")
    ] = None,
    mount_ro: MountRo = None,
    python: Python = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Run recorded programs again, as and where they ran, and say whether the outcome is the same.

    Exit code 0: it is; 1: it is not, or some could not be run; 2: the recorded conditions are not to be had.
    """
    from agent.cli.replay import Request, run

    options = {
        "sandbox.image": image,
        "sandbox.memory_mb": memory,
        "sandbox.mount_ro": mount_ro,
        "sandbox.python": python,
    }
    run(
        Request(
            folder=run_folder,
            pair_id=pair_id,
            round=number,
            execution=execution,
            everything=everything,
            sample=sample,
            seed=seed,
            concurrency=concurrency,
            backend=sandbox,
            options=options,
            settings=tuple(settings or ()),
            as_json=as_json,
        )
    )


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
    reviews: Annotated[
        Literal["blind", "last"],
        typer.Option(help="Of each reviewer's reviews of a pair: the last blind one, or the last word."),
    ] = "blind",
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap.")] = 0,
    resamples: Annotated[int, typer.Option(min=100, help="How often the bootstrap draws.")] = 2000,
    as_json: AsJson = False,
) -> None:
    """Score labels against gold, and annotators against each other, with intervals."""
    from agent.cli.score import run

    run(labels, gold, round=round, reviews=reviews, seed=seed, resamples=resamples, as_json=as_json)


@results.command()
def review(
    run_folder: RunFolder,
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
    from agent.views.queues import Wanted, kinds_of

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
