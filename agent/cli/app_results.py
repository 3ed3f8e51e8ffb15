"""Declares the commands that read finished runs and labels; what they do is imported when they are called."""

from __future__ import annotations

from typing import Annotated

import typer

from agent.cli.options import AsJson, Image, MountRo, Python, RecordedSandbox, RunFolder, Settings

results = typer.Typer()


@results.command()
def show(
    run_folder: RunFolder,
    pair_id: Annotated[str | None, typer.Argument(metavar="ID", help="A pair's id; none: the run's summary.")] = None,
    prompts: Annotated[bool, typer.Option(help="Print the prompts too.")] = False,
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
    sample: Annotated[int | None, typer.Option(min=1, metavar="N", help="With --all: a random sample of N.")] = None,
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

    Exit code 0: it is; 1: it is not, or with --all some could not be run; 2: the recorded conditions are not to be had.
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
