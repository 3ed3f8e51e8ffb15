"""Declares `agent requests`; what the commands do is imported when they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.declaring import SettingsCommand, add_options
from agent.cli.options import AnnotateOptions, ImportOptions, PairsFiles, Without

app = typer.Typer(
    no_args_is_help=True,
    help="Have a batch system of your own answer a run's requests: export, let it answer, import, annotate; repeat.",
)


@app.command(cls=SettingsCommand)
@add_options
def export(
    pairs: PairsFiles,
    without: Without = None,
    *,
    options: AnnotateOptions,
) -> None:
    """Write to -o FILE, in OpenAI's batch format, the next request of each pair that the cache cannot answer.

    Options are those of the `agent annotate` that will use the replies; all roles are to have the same model.
    """
    from agent.cli.requests_files import export

    export(pairs, tuple(without or ()), options)


@app.command("import", cls=SettingsCommand)
@add_options
def import_(
    outputs: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Output and error files, in OpenAI's batch format.")
    ],
    price_factor: Annotated[
        float, typer.Option(min=0, metavar="X", help="What the replies cost, by the list price.")
    ] = 0.5,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON on standard output.")] = False,
    *,
    options: ImportOptions,
) -> None:
    """Put the replies of batches into the cache; failed lines are counted and shown, and may be exported again.

    Exit code 1: there were failed lines, or lines that are no reply to an exported request.
    """
    from agent.cli.requests_files import import_

    import_(outputs, options, price_factor, as_json=as_json)
