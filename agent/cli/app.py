"""Declares the commands and their options; what they do is imported when they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from agent.cli import requests, retrieval, runs
from agent.cli.declaring import SettingsCommand, add_options
from agent.cli.options import (
    AnnotateOptions,
    AsJson,
    EnvOptions,
    ExecOptions,
    Formats,
    ListOptions,
    ModelOptions,
    PairsFiles,
    ReplayOptions,
    ReviewOptions,
    RunFolder,
    RunOptions,
    Sandboxes,
    Without,
)

app = typer.Typer(
    name="agent",
    help="Decide whether code exactly matches a search query, and prove it by running a test in a sandbox.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Log model calls, sandboxes and pairs as they go.")
    ] = False,
    log_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Append that log to a file.")] = None,
) -> None:
    """Options before the command."""
    if verbose or log_file is not None:
        from agent.cli.logs import write_log

        write_log(verbose=verbose, file=log_file)
    if version:
        from agent import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.command(cls=SettingsCommand)
@add_options
def annotate(
    pairs: PairsFiles,
    without: Without = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Ask and write nothing: estimate calls, tokens, cost and time.")
    ] = False,
    like: Annotated[
        Path | None, typer.Option(metavar="RUN", help="With --dry-run: a run of the same variant to estimate by.")
    ] = None,
    *,
    options: AnnotateOptions,
) -> None:
    """Label pairs; each label comes with the test that decided it. The same command again goes on where it stopped."""
    from agent.cli.annotate import run

    run(pairs, tuple(without or ()), options, dry_run=dry_run, like=like)


@app.command(cls=SettingsCommand)
@add_options
def ablate(
    pairs: PairsFiles,
    gold: Annotated[
        Path | None, typer.Option(help="Gold labels by id [default: the field `label` of the pairs themselves].")
    ] = None,
    variants: Annotated[
        str | None,
        typer.Option(metavar="A,B,…", help="Names, YAML files, NAME-without-NODE [default: all of `agent graph`]."),
    ] = None,
    against: Annotated[
        str | None, typer.Option(metavar="NAME", help="The variant that the others are tested against [default: full].")
    ] = None,
    *,
    options: RunOptions,
) -> None:
    """Compare variants on the same pairs against gold, each question asked and each program run once for all."""
    from agent.cli.ablate import run

    run(pairs, gold, variants, against, options)


@app.command("exec", cls=SettingsCommand)
@add_options
def execute(
    program: Annotated[Path, typer.Argument(help="A test program: test_* functions or unittest cases.")],
    code: Annotated[Path | None, typer.Option(help="A snippet to put in place of the line `# <candidate>`.")] = None,
    install: Annotated[bool, typer.Option(help="Install missing imports first (stage 1 of the repair).")] = True,
    as_json: AsJson = False,
    *,
    options: ExecOptions,
) -> None:
    """Run a test program in a sandbox and print the report.

    Exit code 0: every case passed; 1: not so, or the sandbox broke.
    """
    from agent.cli.execute import run

    run(program, code, options, install=install, as_json=as_json)


@app.command(cls=SettingsCommand)
@add_options
def doctor(
    sandbox: Annotated[
        Sandboxes | None,
        typer.Option(help="Look at one sandbox only, with auto at the one it takes [default: at all]."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the self-check of the sandboxes.")] = False,
    as_json: AsJson = False,
    *,
    options: ModelOptions,
) -> None:
    """Say what works on this machine and what to do about the rest, and attack each sandbox, which takes a minute.

    Exit code 1: something needed is missing, or an attack succeeded.
    """
    from agent.cli.doctor import run

    run(options, sandbox=sandbox, as_json=as_json, quick=quick)


@app.command()
def graph(
    variant: Annotated[str | None, typer.Argument(help="A pipeline's name or YAML file; none: list them.")] = None,
    without: Without = None,
    as_json: AsJson = False,
) -> None:
    """Draw a pipeline as a Mermaid flowchart."""
    from agent.cli.graph import run

    run(variant, tuple(without or ()), as_json=as_json)


@app.command()
@add_options
def show(
    run_folder: RunFolder,
    pair_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="A pair's id; none: the run's summary and its pairs.")
    ] = None,
    prompts: Annotated[
        bool, typer.Option(help="Print the prompts too, and replies with the programs in them.")
    ] = False,
    number: Annotated[
        int | None, typer.Option("--round", min=0, metavar="N", help="Only this round, of a run with several.")
    ] = None,
    as_json: AsJson = False,
    *,
    options: ListOptions,
) -> None:
    """Show what a run holds, or of one pair what led to its label: replies, program, cases, repairs.

    In colours on a terminal, unless NO_COLOR is set; to page it in colours: FORCE_COLOR=1 agent show RUN ID | less -R
    """
    from agent.cli.show import run

    run(run_folder, pair_id, options, round=number, prompts=prompts, as_json=as_json)


@app.command(cls=SettingsCommand)
@add_options
def replay(
    run_folder: RunFolder,
    pair_id: Annotated[str | None, typer.Argument(metavar="ID", help="A pair's id; none: with --all.")] = None,
    *,
    options: ReplayOptions,
) -> None:
    """Run recorded programs again, as and where they ran, and say whether the outcome is the same.

    Exit code 0: it is; 1: it is not, or some could not be run; 2: the recorded conditions are not to be had.
    """
    from agent.cli.replay import run

    run(run_folder, pair_id, options)


@app.command()
def score(
    labels: Annotated[
        list[Path],
        typer.Argument(
            metavar="LABELS...", help="Runs' folders, or files of anybody's labels: id and label, or votes."
        ),
    ],
    gold: Annotated[
        Path | None,
        typer.Option(metavar="GOLD", help="A file of id and right label; none: agreement alone is computed."),
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


@app.command()
@add_options
def review(run_folder: RunFolder, *, options: ReviewOptions) -> None:
    """Label pairs yourself, on a page that this machine alone can open. Without options: go on with the sample.

    A sample says how good the whole run is (`agent score RUN`); --queue finds the pairs that need a person. Reviews go
    to RUN/reviews.jsonl; annotations stay as they are. Ctrl-C ends it.
    """
    from agent.cli.review import run

    run(run_folder, options)


@app.command()
def report(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, or an ablation's.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file [default: report.html in RUN].")] = None,
    gold: Annotated[Path | None, typer.Option(metavar="GOLD", help="Gold labels: scores and calibration.")] = None,
    evidence: Annotated[
        Literal["all", "tested", "none"], typer.Option(help="Of which pairs prompts, programs and outputs go in.")
    ] = "all",
    max_mb: Annotated[float, typer.Option("--max-mb", min=2, help="As much evidence as fits into so many MB.")] = 15.0,
    as_json: AsJson = False,
) -> None:
    """Write one HTML file that opens without network: figures, and every pair to search, filter and open."""
    from agent.cli.report import run

    run(run_folder, out=out, gold=gold, kept=evidence, max_mb=max_mb, as_json=as_json)


@app.command()
def export(
    run_folder: RunFolder,
    to: Annotated[Formats, typer.Option(help="The format; hf is a folder for datasets.load_dataset.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file or folder [default: export.… in RUN].")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="0|1|null", help="Only pairs with this label. Repeatable.")
    ] = None,
    decided_by: Annotated[
        list[str] | None, typer.Option(metavar="NODE", help="Only pairs that this step decided. Repeatable.")
    ] = None,
    errors: Annotated[
        bool | None, typer.Option(help="Only pairs that ended in an error, or only others [default: both].")
    ] = None,
    min_confidence: Annotated[
        float | None, typer.Option(min=0, max=1, metavar="X", help="Only pairs of this confidence or more.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write labels with the input's own fields for others: JSON lines, CSV, Parquet, Hugging Face, BEIR, CoSQA+."""
    from agent.cli.export import run

    filters = {"decided_by": decided_by or (), "errors": errors, "min_confidence": min_confidence}
    run(run_folder, to, out=out, labels=label or (), filters=filters, force=force, as_json=as_json)


@app.command()
def schema(
    of: Annotated[Literal["labels", "annotations"], typer.Argument(help="Of labels.jsonl or annotations.jsonl.")],
    as_json: AsJson = False,
) -> None:
    """Print the JSON Schema of the lines of a run's file."""
    from agent.cli.schema import run

    run(of, as_json=as_json)


app.add_typer(retrieval.app, name="retrieval")
app.add_typer(requests.app, name="requests")
app.add_typer(runs.app, name="runs")
environments = typer.Typer(no_args_is_help=True, help="Look after the dependency environments kept from run to run.")
app.add_typer(environments, name="env")


@environments.command("list", cls=SettingsCommand)
@add_options
def list_environments(as_json: AsJson = False, *, options: EnvOptions) -> None:
    """List what is kept: packages, size and last use. With `--sandbox auto`: of every backend that works here."""
    from agent.cli.env import show

    show(options, as_json=as_json)


@environments.command("prune", cls=SettingsCommand)
@add_options
def prune_environments(
    older_than: Annotated[
        float | None, typer.Option(min=0, metavar="DAYS", help="Remove what was not used for so many days.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove everything.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    as_json: AsJson = False,
    *,
    options: EnvOptions,
) -> None:
    """Remove environments that nobody uses: by default those unused longest, down to the setting sandbox.store_mb."""
    from agent.cli.env import prune

    prune(options, older_than=older_than, everything=everything, dry_run=dry_run, as_json=as_json)
