"""Declares the commands and their options; what they do is imported when they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from agent.cli.app_results import results
from agent.cli.options import (
    AsJson,
    BaseUrl,
    EraName,
    ExcludeNewer,
    Image,
    Memory,
    Models,
    MountRo,
    Python,
    Requirements,
    SandboxName,
    Settings,
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
def annotate(
    pairs: Annotated[Path, typer.Argument(help="Pairs of query and code: .jsonl, .json or .jsonl.gz.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The run's folder [default: runs/<file>-<variant>-<model>].")
    ] = None,
    model: Models = None,
    base_url: BaseUrl = None,
    variant: Annotated[str, typer.Option(help="A pipeline's name (see `agent graph`) or a YAML file.")] = "full",
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE", help="Leave a node out, or put the plain one in its place. Repeatable."),
    ] = None,
    sandbox: SandboxName = "auto",
    image: Image = None,
    memory: Memory = None,
    mount_ro: MountRo = None,
    requirements: Requirements = None,
    exclude_newer: ExcludeNewer = None,
    python: Python = None,
    era: EraName = "run",
    concurrency: Annotated[int, typer.Option(min=1, help="Pairs in progress at once.")] = 8,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=86400, help="Seconds for one execution of a test program.")
    ] = 15.0,
    pair_timeout: Annotated[
        float | None, typer.Option(min=0.1, max=86400, help="Seconds for one pair, all in all.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Annotate only the first N pairs.")] = None,
    budget: Annotated[float | None, typer.Option(min=1e-6, metavar="USD", help="Stop before spending more.")] = None,
    field_map: Annotated[
        str | None, typer.Option("--map", metavar="query=FIELD,code=FIELD", help="Names of the input's own fields.")
    ] = None,
    abstain: Annotated[
        Literal["keep", "negative"],
        typer.Option(help="Where the arbiter may abstain and does: keep the label null, or make it 0."),
    ] = "keep",
    on_bad_line: Annotated[Literal["fail", "skip"], typer.Option(help="What to do with malformed lines.")] = "fail",
    unsupported: Annotated[
        Literal["fail", "judge", "skip"], typer.Option(help="Pairs of a language that cannot be run here.")
    ] = "fail",
    retry_errors: Annotated[bool, typer.Option(help="Try pairs again that ended in an error before.")] = False,
    cache: Annotated[Path, typer.Option(help="Keeps the model's replies over runs.")] = Path("runs/cache.sqlite"),
    prompts: Annotated[Path | None, typer.Option(help="A folder of templates that replace the built-in ones.")] = None,
    prices: Annotated[Path | None, typer.Option(help="A file of prices that adds to the built-in ones.")] = None,
    reply_format: Annotated[
        Literal["json_object", "json_schema", "text"], typer.Option(help="How JSON is asked of the server.")
    ] = "json_object",
    thinking: Annotated[Literal["on", "off"] | None, typer.Option(help="Switch a model's reasoning.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Sent only when given.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest reply.")] = None,
    extra_body: Annotated[str | None, typer.Option(metavar="JSON", help="More fields of every request.")] = None,
    deadline: Annotated[float | None, typer.Option(min=0.1, help="Seconds for one try of a model call.")] = None,
    attempts: Annotated[int | None, typer.Option(min=1, help="Tries of a model call on passing failures.")] = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Label pairs; each label comes with the test that decided it. The same command again goes on where it stopped."""
    from agent.cli.annotate import Request, run

    run(
        Request(
            pairs=pairs,
            out=out,
            models=tuple(model or ()),
            model_options={
                "base_url": base_url,
                "prices": prices,
                "reply_format": reply_format,
                "thinking": thinking,
                "temperature": temperature,
                "max_tokens": max_tokens,
                "extra_body": extra_body,
                "deadline": deadline,
                "attempts": attempts,
            },
            without=tuple(without or ()),
            limit=limit,
            field_map=field_map,
            on_bad_line=on_bad_line,
            unsupported=unsupported,
            retry_errors=retry_errors,
            cache=cache,
            prompts=prompts,
            settings={
                "variant": variant,
                "sandbox.backend": sandbox,
                "sandbox.image": image,
                "sandbox.memory_mb": memory,
                "sandbox.mount_ro": mount_ro,
                "sandbox.requirements": requirements and str(requirements),
                "sandbox.exclude_newer": exclude_newer,
                "sandbox.python": python,
                "sandbox.era": era,
                "runner.concurrency": concurrency,
                "runner.budget_usd": budget,
                "pipeline.test_timeout": timeout,
                "pipeline.pair_timeout": pair_timeout,
                "pipeline.abstain": abstain,
            },
            more_settings=tuple(settings or ()),
            as_json=as_json,
        )
    )


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
    """Run a test program in a sandbox and print the report. Exit code 0: every case passed; 1: not so."""
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
def doctor(
    model: Models = None,
    base_url: BaseUrl = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the self-check of the sandboxes.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say what works on this machine and what to do about the rest, and attack each sandbox, which takes a minute.

    Exit code 1: something needed is missing, or an attack succeeded.
    """
    from agent.cli.doctor import run

    run(tuple(model or ()), base_url=base_url, as_json=as_json, quick=quick)


@app.command()
def graph(
    variant: Annotated[str | None, typer.Argument(help="A pipeline's name or YAML file; none: list them.")] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE", help="Leave a node out, or put the plain one in its place. Repeatable."),
    ] = None,
) -> None:
    """Draw a pipeline as a Mermaid flowchart."""
    from agent.cli.graph import run

    run(variant, tuple(without or ()))


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
