"""Declares the commands and their options. Each command imports its implementation when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from agent.cli import corpus, requests, retrieval, runs
from agent.cli.declaring import Group, add_options
from agent.cli.options import (
    AnnotateOptions,
    AsJson,
    EnvOptions,
    ExecOptions,
    Formats,
    ListOptions,
    Map,
    PairsFiles,
    PreferOptions,
    ReplayOptions,
    ReviewOptions,
    RunFolder,
    RunOptions,
    Sandboxes,
    ServerOptions,
    TrainOptions,
    Without,
)

app = typer.Typer(
    name="agent",
    cls=Group,
    help="Decide whether code exactly matches a search query, using tests executed in a sandbox as evidence.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Log model calls, sandboxes and pairs to standard error.")
    ] = False,
    log_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Append a more detailed log to this file.")
    ] = None,
) -> None:
    """Handle the options that precede the command."""
    if verbose or log_file is not None:
        from agent.cli.logs import write_log

        write_log(verbose=verbose, file=log_file)
    if version:
        from agent import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.command()
@add_options
def annotate(
    pairs: PairsFiles,
    without: Without = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Estimate calls, tokens, cost and time without calling a model.")
    ] = False,
    *,
    options: AnnotateOptions,
) -> None:
    """Label pairs and store the evidence for each label.

    To resume a stopped run, run the same command again.
    """
    from agent.cli.annotate import run

    run(pairs, tuple(without or ()), options, dry_run=dry_run)


@app.command()
@add_options
def ablate(
    pairs: PairsFiles,
    gold: Annotated[
        Path | None,
        typer.Option(help="File of gold labels, keyed by pair id [default: the `label` field of the pairs]."),
    ] = None,
    variants: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help="Variants to compare: names, YAML files or NAME-without-NODE "
            "[default: all variants that `agent graph` lists, except `cosqa`].",
        ),
    ] = None,
    against: Annotated[
        str | None, typer.Option(metavar="NAME", help="Reference variant for the paired tests [default: full].")
    ] = None,
    *,
    options: RunOptions,
) -> None:
    """Compare how well variants label the same pairs.

    Scores each variant against gold labels. Variants share results: each distinct model call is made once, and
    each distinct test program is run once.
    """
    from agent.cli.ablate import run

    run(pairs, gold, variants, against, options)


@app.command("exec")
@add_options
def execute(
    program: Annotated[
        Path, typer.Argument(metavar="PROGRAM", help="Test program, such as test_* functions or unittest cases.")
    ],
    code: Annotated[
        Path | None, typer.Option(help="File with the snippet that replaces the marker, such as `# <candidate>`.")
    ] = None,
    language: Annotated[str, typer.Option(help="Language of the snippet.")] = "python",
    install: Annotated[
        bool,
        typer.Option(help="Install packages for missing imports and run the program again (stage 1 of a repair)."),
    ] = True,
    as_json: AsJson = False,
    *,
    options: ExecOptions,
) -> None:
    """Run a test program in a sandbox and print its outcome.

    Exit code 0: all cases passed. 1: a case did not pass, the program could not run, or the sandbox failed.
    """
    from agent.cli.execute import run

    run(program, code, options, language_name=language, install=install, as_json=as_json)


@app.command()
@add_options
def doctor(
    sandbox: Annotated[
        Sandboxes | None,
        typer.Option(help="Sandbox backend to check; auto checks the backend that it selects [default: all backends]."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Skip the self-checks of the sandboxes.")] = False,
    as_json: AsJson = False,
    *,
    options: ServerOptions,
) -> None:
    """Check sandboxes, the package index and models.

    Suggests a remedy for each problem on this machine. The self-check attacks each sandbox, which takes about a minute.

    Exit code 1: a required part does not work, or an attack succeeded.
    """
    from agent.cli.doctor import run

    run(options, sandbox=sandbox, as_json=as_json, quick=quick)


@app.command()
def graph(
    variant: Annotated[
        str | None,
        typer.Argument(metavar="VARIANT", help="Name or YAML file of a variant. Omit it to list the variants."),
    ] = None,
    without: Without = None,
    as_json: AsJson = False,
) -> None:
    """List the variants, or print one as a Mermaid flowchart."""
    from agent.cli.graph import run

    run(variant, tuple(without or ()), as_json=as_json)


@app.command()
@add_options
def show(
    run_folder: RunFolder,
    pair_id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="Id of a pair. Omit it to show the summary of the run and list its pairs."),
    ] = None,
    prompts: Annotated[
        bool,
        typer.Option("--with-prompts", help="Also print prompts, and print replies in full, including the programs."),
    ] = False,
    number: Annotated[int | None, typer.Option("--round", min=0, metavar="N", help="Show only this round.")] = None,
    as_json: AsJson = False,
    *,
    options: ListOptions,
) -> None:
    """Show a run, or how one pair got its label.

    For a pair, prints the replies, test programs, test cases and repairs.

    Output is coloured on a terminal unless NO_COLOR is set.
    To page the output in colour, run: FORCE_COLOR=1 agent show RUN ID | less -R
    """
    from agent.cli.show import run

    run(run_folder, pair_id, options, round=number, prompts=prompts, as_json=as_json)


@app.command()
@add_options
def replay(
    run_folder: RunFolder,
    pair_ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Ids of pairs [default: all pairs].", show_default=False)
    ] = None,
    *,
    options: ReplayOptions,
) -> None:
    """Run the last program of each pair again and compare the outcomes.

    Each program runs with the recorded sandbox, limits and packages.

    Exit code 0: all outcomes are the same as in the run. 1: an outcome differs, or a program could not run.
    2: the recorded sandbox is not available.
    """
    from agent.cli.replay import run

    run(run_folder, pair_ids or [], options)


@app.command()
def score(
    labels: Annotated[
        list[Path],
        typer.Argument(
            metavar="LABELS",
            help="Run folders, label files with the fields `id` and `label` (or `votes`), or generated answers.",
        ),
    ],
    gold: Annotated[
        Path | None,
        typer.Option(
            metavar="GOLD",
            help="File of gold labels, keyed by pair id. Without it, print only agreement and estimates from reviews.",
        ),
    ] = None,
    round: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Score a single round [default: majority labels over all rounds]."),
    ] = None,
    field_map: Map = None,
    reviews: Annotated[
        Literal["blind", "last"],
        typer.Option(
            help="Review to use for each reviewer and pair: the last blind review, or the last review of any kind."
        ),
    ] = "blind",
    mistakes: Annotated[
        bool,
        typer.Option("--mistakes", help="List false and missed matches of runs with deciding node, test and reason."),
    ] = False,
    min_agreement: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="X",
            help="Also print Krippendorff's alpha between rounds for the pairs that `agent export --min-agreement X` "
            "keeps.",
        ),
    ] = None,
    certify: Annotated[
        float | None,
        typer.Option(
            metavar="LEVEL",
            help="Certify that at most this share of the labels is wrong. Needs a reviewed sample "
            "(`agent review --stratify evidence`).",
        ),
    ] = None,
    until: Annotated[
        float | None,
        typer.Option(metavar="LEVEL", help="As --certify, with a bound that is valid before the sample is complete."),
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Estimate the probability that a label is right, by evidence.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Random seed for the bootstrap.")] = 0,
    resamples: Annotated[int, typer.Option(min=100, help="Number of bootstrap resamples.")] = 2000,
    as_json: AsJson = False,
) -> None:
    """Score labels against gold labels and compute agreement.

    Prints confidence intervals. For a run with a reviewed sample, also estimates the accuracy, precision and recall of
    the whole run. For answers from `agent corpus answer`, prints ROUGE.
    """
    if certify is not None or until is not None or calibrate:
        from agent.cli.certify import run as run_certify

        others = {gold, round, field_map, min_agreement} != {None} or mistakes or reviews != "blind"
        run_certify(labels, certify, until, calibrate=calibrate, with_others=others, as_json=as_json)
        return
    from agent.cli.score import run

    run(
        labels,
        gold,
        field_map,
        round=round,
        reviews=reviews,
        list_errors=mistakes,
        min_agreement=min_agreement,
        seed=seed,
        resamples=resamples,
        as_json=as_json,
    )


@app.command()
@add_options
def review(run_folder: RunFolder, *, options: ReviewOptions) -> None:
    """Label pairs of a run yourself, on a local web page.

    By default, continues with the current sample, from which `agent score RUN` estimates the quality of the whole run.
    With --queue, selects pairs that need human review instead. Writes reviews to RUN/reviews.jsonl and does not change
    annotations. Press Ctrl-C to stop.
    """
    from agent.cli.review import run

    run(run_folder, options)


@app.command()
@add_options
def prefer(
    a: Annotated[Path, typer.Argument(metavar="RUN_A", help="Folder of a run, or a file of pairs with labels.")],
    b: Annotated[Path, typer.Argument(metavar="RUN_B", help="Folder of another run, or another file.")],
    *,
    options: PreferOptions,
) -> None:
    """Compare the snippets that two datasets, A and B, label as matches of the same queries.

    Shows the snippets blind on the review page, or with --model to a model, and prints how often B's is preferred.
    To resume, run the same command again.
    """
    from agent.cli.prefer import run

    run(a, b, options)


@app.command()
def report(
    run_folder: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder of a run, an ablation or a retrieval benchmark.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="HTML file to write [default: report.html in RUN].")
    ] = None,
    gold: Annotated[Path | None, typer.Option(metavar="GOLD", help="File of gold labels. Adds scores.")] = None,
    field_map: Map = None,
    evidence: Annotated[
        Literal["all", "tested", "none"],
        typer.Option(help="Pairs whose prompts, programs and outputs are included."),
    ] = "all",
    max_mb: Annotated[
        float,
        typer.Option("--max-mb", min=2, help="Maximum size of the file in MB; evidence that does not fit is omitted."),
    ] = 15.0,
    as_json: AsJson = False,
) -> None:
    """Write an HTML report on a run to a single file.

    The page works offline. It shows statistics and a list of all pairs, which you can search, filter and open.
    """
    from agent.cli.report import run

    run(run_folder, out=out, gold=gold, field_map=field_map, evidence=evidence, max_mb=max_mb, as_json=as_json)


@app.command()
def export(
    run_folder: RunFolder,
    to: Annotated[Formats, typer.Option(help="Output format; hf writes a folder for datasets.load_dataset.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File or folder to write [default: export.… in RUN].")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="0|1|null", help="Export only pairs with this label. Repeatable.")
    ] = None,
    decided_by: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE", help="Export only pairs whose label was decided by this node. Repeatable."),
    ] = None,
    errors: Annotated[
        bool | None,
        typer.Option(help="Export only pairs that ended in an error, or only pairs without an error [default: both]."),
    ] = None,
    min_agreement: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="X",
            help="Export only pairs with at least this share of the rounds in agreement (two of three: 0.66).",
        ),
    ] = 0.0,
    certified: Annotated[
        bool,
        typer.Option(
            "--certified", help="Keep only certified labels (see `agent score --certify`). Others become null."
        ),
    ] = False,
    more: Annotated[
        Literal["p_correct"] | None,
        typer.Option("--with", help="Add the columns p_correct and p_low (see `agent score --calibrate`)."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing export.")] = False,
    as_json: AsJson = False,
) -> None:
    """Export labels and input fields for other tools."""
    from agent.cli.export import run

    filters = {"decided_by": decided_by or (), "errors": errors, "min_agreement": min_agreement}
    run(
        run_folder,
        to,
        out=out,
        labels=label or (),
        filters=filters,
        certified=certified,
        calibrated=bool(more),
        force=force,
        as_json=as_json,
    )


@app.command()
@add_options
def train(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="Run, folder of `agent corpus split`, file of pairs, or benchmark.")
    ],
    recipe: Annotated[
        Literal["biencoder", "siamese", "coclr", "macp", "unif"],
        typer.Option(help="How to train, as in docs/training.md."),
    ] = "biencoder",
    *,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="MODEL", help="Folder for the model.")],
    options: TrainOptions,
) -> None:
    """Train a code searcher on labelled pairs.

    Run the same command again to resume.
    """
    from agent.cli.train import run

    run(data, recipe, out, options)


@app.command()
def schema(
    of: Annotated[
        Literal["labels", "annotations"],
        typer.Argument(metavar="FILE", help="labels (labels.jsonl) or annotations (annotations.jsonl)."),
    ],
    as_json: AsJson = False,
) -> None:
    """Print the JSON Schema of a run's labels or annotations."""
    from agent.cli.schema import run

    run(of, as_json=as_json)


app.add_typer(corpus.app, name="corpus")
app.add_typer(retrieval.app, name="retrieval")
app.add_typer(requests.app, name="requests")
app.add_typer(runs.app, name="runs")
environments = typer.Typer(cls=Group, no_args_is_help=True, help="List and remove cached environments.")
app.add_typer(environments, name="env")


@environments.command("list")
@add_options
def list_environments(as_json: AsJson = False, *, options: EnvOptions) -> None:
    """List cached environments with their packages, size and last use.

    With `--sandbox auto`, lists the environments of every backend that works on this machine.
    """
    from agent.cli.env import show

    show(options, as_json=as_json)


@environments.command("prune")
@add_options
def prune_environments(
    older_than: Annotated[
        float | None,
        typer.Option(min=0, metavar="DAYS", help="Remove environments that have not been used for this many days."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove all environments and downloads.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be removed, without removing it.")
    ] = False,
    as_json: AsJson = False,
    *,
    options: EnvOptions,
) -> None:
    """Remove cached environments that are not in use.

    By default, removes the least recently used environments until the cache is no larger than sandbox.store_mb.
    """
    from agent.cli.env import prune

    prune(options, older_than=older_than, everything=everything, dry_run=dry_run, as_json=as_json)
