"""Declares the commands and their options; what they do is imported when they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.app_results import results
from agent.cli.options import (
    AsJson,
    ExcludeNewer,
    Image,
    Memory,
    ModelOptions,
    MountRo,
    Python,
    Requirements,
    RunOptions,
    Sandboxes,
    SandboxName,
    Settings,
    takes_options,
)

app = typer.Typer(
    name="agent",
    help="Decide whether code exactly matches a search query, and prove it by running a test in a sandbox.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(results)

environments = typer.Typer(no_args_is_help=True, help="Look after the dependency environments kept from run to run.")
app.add_typer(environments, name="env")


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Options before the command."""
    if version:
        from agent import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.command()
@takes_options
def annotate(
    pairs: Annotated[Path, typer.Argument(help="Pairs of query and code: .jsonl, .json or .jsonl.gz.")],
    variant: Annotated[str, typer.Option(help="A pipeline's name (see `agent graph`) or a YAML file.")] = "full",
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE", help="Leave a node out, or put the plain one in its place. Repeatable."),
    ] = None,
    *,
    options: RunOptions,
) -> None:
    """Label pairs; each label comes with the test that decided it. The same command again goes on where it stopped."""
    from agent.cli.annotate import run

    run(pairs, variant, tuple(without or ()), options)


@app.command()
@takes_options
def ablate(
    pairs: Annotated[Path, typer.Argument(help="Pairs of query and code: .jsonl, .json or .jsonl.gz.")],
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


@app.command("exec")
def execute(
    program: Annotated[Path, typer.Argument(help="A test program: test_* functions or unittest cases.")],
    code: Annotated[Path | None, typer.Option(help="A snippet to put in place of the line `# <candidate>`.")] = None,
    sandbox: SandboxName = "auto",
    image: Image = None,
    memory: Memory = None,
    mount_ro: MountRo = None,
    requirements: Requirements = None,
    exclude_newer: ExcludeNewer = None,
    python: Python = None,
    timeout: Annotated[float, typer.Option(min=0.1, max=86400, help="Seconds for the execution.")] = 15.0,
    install: Annotated[bool, typer.Option(help="Install missing imports first (stage 1 of the repair).")] = True,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Run a test program in a sandbox and print the report.

    Exit code 0: every case passed; 1: not so, or the sandbox broke.
    """
    from agent.cli.execute import run

    options = {
        "sandbox.backend": sandbox,
        "sandbox.image": image,
        "sandbox.memory_mb": memory,
        "sandbox.mount_ro": mount_ro,
        "sandbox.requirements": requirements and str(requirements),
        "sandbox.exclude_newer": exclude_newer,
        "sandbox.python": python,
        "pipeline.test_timeout": timeout,
    }
    run(program, code, options=options, install=install, settings=settings or [], as_json=as_json)


@app.command()
@takes_options
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
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE", help="Leave a node out, or put the plain one in its place. Repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw a pipeline as a Mermaid flowchart."""
    from agent.cli.graph import run

    run(variant, tuple(without or ()), as_json=as_json)


@environments.command("list")
def list_environments(sandbox: SandboxName = "auto", settings: Settings = None, as_json: AsJson = False) -> None:
    """List what is kept: packages, size and last use. With `--sandbox auto`: of every backend that works here."""
    from agent.cli.env import show

    show(sandbox, settings or [], as_json=as_json)


@environments.command("prune")
def prune_environments(
    older_than: Annotated[
        float | None, typer.Option(min=0, metavar="DAYS", help="Remove what was not used for so many days.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove everything.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    sandbox: SandboxName = "auto",
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Remove environments that nobody uses: by default those unused longest, down to the setting sandbox.store_mb."""
    from agent.cli.env import prune

    prune(sandbox, settings or [], older_than=older_than, everything=everything, dry_run=dry_run, as_json=as_json)
