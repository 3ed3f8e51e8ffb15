"""Declares `agent runs` and its options; what the commands do is imported when they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from agent.cli.options import AsJson

Runs = Annotated[list[Path], typer.Argument(metavar="RUN", help="Runs' folders.")]


class _ListByDefault(TyperGroup):
    """Takes what is no command for the arguments of `list`: `agent runs FOLDER`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command `list` before arguments without a command."""
        commands = {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, args if args and args[0] in commands else ["list", *args])


app = typer.Typer(cls=_ListByDefault, help="List the runs in a folder (default runs/); check them; merge them.")


@app.command("list")
def list_folder(
    folder: Annotated[Path, typer.Argument(help="Where runs lie, or one of them.")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List the runs in a folder: how far they are, their labels and errors, and what they cost. Also without `list`."""
    from agent.cli.runs_folders import list_runs

    list_runs(folder, as_json=as_json)


@app.command()
def merge(
    runs: Runs,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="NEW", help="The new run's folder.")],
    as_json: AsJson = False,
) -> None:
    """Merge runs of the same settings, such as shards of the pairs, into a new one; it is a run like any other."""
    from agent.cli.runs_folders import merge_runs

    merge_runs(runs, out, as_json=as_json)


@app.command()
def verify(runs: Runs, as_json: AsJson = False) -> None:
    """Check that runs are whole: ids, counts, hashes, labels and evidence. An unfinished run may be fine.

    Exit code 0: they are fine; 1: there are problems, each with its remedy.
    """
    from agent.cli.runs_folders import verify_runs

    verify_runs(runs, as_json=as_json)
