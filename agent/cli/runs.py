"""Declares `agent runs` and its options. Each command imports its implementation when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agent.cli.declaring import Group
from agent.cli.options import AsJson

Runs = Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs.")]


class _ListByDefault(Group):
    """A command group that runs the `list` command by default, as in `agent runs FOLDER`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the `list` command if the first argument is not a command."""
        commands = {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, args if args and args[0] in commands else ["list", *args])


app = typer.Typer(cls=_ListByDefault, help="List, check and merge runs.")


@app.command("list")
def list_folder(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder that contains runs, or the folder of a single run.")
    ] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List runs with their progress, labels, errors and cost.

    The word `list` may be omitted.
    """
    from agent.cli.runs_folders import list_runs

    list_runs(folder, as_json=as_json)


@app.command()
def merge(
    runs: Runs,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="NEW", help="Folder of the merged run.")],
    as_json: AsJson = False,
) -> None:
    """Merge runs with the same settings into a new run.

    The runs may contain different shards of the pairs. The new run can be resumed like any other run.
    """
    from agent.cli.runs_folders import merge_runs

    merge_runs(runs, out, as_json=as_json)


@app.command()
def verify(runs: Runs, as_json: AsJson = False) -> None:
    """Check runs for damage.

    Checks ids, counts, hashes, labels and evidence. An unfinished run is not reported as damaged.

    Exit code 0: no problems. 1: problems were found; each is printed with a remedy.
    """
    from agent.cli.runs_folders import verify_runs

    verify_runs(runs, as_json=as_json)
