"""Declares `agent requests`. Each command imports its implementation when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.declaring import Group, add_options
from agent.cli.options import AsJson, ExportOptions, ImportOptions, PairsFiles, Without

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Send a run's model calls through your own batch system. Repeat these steps: export, send, import, annotate.",
)


@app.command()
@add_options
def export(
    pairs: PairsFiles,
    without: Without = None,
    *,
    options: ExportOptions,
) -> None:
    """Export the next requests of a run as a batch file.

    Writes a file in OpenAI's batch format (-o FILE). For each pair, the file contains the next request that has no
    cached reply. Pass the same options here as to the `agent annotate` command that will use the replies. All roles
    must use the same model.
    """
    from agent.cli.requests_files import export

    export(pairs, tuple(without or ()), options)


@app.command("import")
@add_options
def import_(
    outputs: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Output and error files in OpenAI's batch format (.gz too).")
    ],
    price_factor: Annotated[
        float, typer.Option(min=0, metavar="X", help="Price of the replies relative to the list price.")
    ] = 0.5,
    as_json: AsJson = False,
    *,
    options: ImportOptions,
) -> None:
    """Import the replies from batches into the cache.

    Counts failed requests and prints the most frequent errors. The next export contains the failed requests again.

    Exit code 1: a request failed, or a line is not JSON or has an unknown request id.
    """
    from agent.cli.requests_files import import_

    import_(outputs, options, price_factor, as_json=as_json)
