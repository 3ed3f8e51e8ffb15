"""Declares `agent requests`. Each command imports its implementation when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.declaring import SettingsCommand, add_options
from agent.cli.options import AnnotateOptions, ImportOptions, PairsFiles, Without

app = typer.Typer(
    no_args_is_help=True,
    help="Answer a run's requests with your own batch system. Repeat: export, send, import, annotate.",
)


@app.command(cls=SettingsCommand)
@add_options
def export(
    pairs: PairsFiles,
    without: Without = None,
    *,
    options: AnnotateOptions,
) -> None:
    """Export the next requests of a run as a batch file.

    Writes to -o FILE, in OpenAI's batch format, the next request of each pair that the cache cannot answer. Pass the
    options of the `agent annotate` that will use the replies. All roles must have the same model.
    """
    from agent.cli.requests_files import export

    export(pairs, tuple(without or ()), options)


@app.command("import", cls=SettingsCommand)
@add_options
def import_(
    outputs: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Output and error files in OpenAI's batch format.")
    ],
    price_factor: Annotated[
        float, typer.Option(min=0, metavar="X", help="Price of the replies relative to the list price.")
    ] = 0.5,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")] = False,
    *,
    options: ImportOptions,
) -> None:
    """Import the replies of batches into the cache.

    Failed lines are counted and printed. Their requests may be exported again.

    Exit code 1: a line failed, or does not reply to an exported request.
    """
    from agent.cli.requests_files import import_

    import_(outputs, options, price_factor, as_json=as_json)
