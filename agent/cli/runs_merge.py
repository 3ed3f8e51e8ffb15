"""`agent runs merge`: joins runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from agent.cli.progress import Steps
from agent.cli.text import Console, print_json, say
from agent.store.merge import merge
from agent.wording import counted


def run(runs: Sequence[Path], out: Path, *, as_json: bool) -> None:
    """Join runs, and say what came of it.

    Raises:
        RunFolderError: they cannot be joined; says why.
        StorageError: the new folder cannot be written.
    """
    console = Console(stderr=True)
    with Steps(console) as steps:
        merged = merge(runs, out, steps)
    for name in merged.left_out:
        say(console, f"left out: {name}, which is a sample of that run's pairs alone")
    if as_json:
        print_json(asdict(merged))
    else:
        what = f"{counted(merged.pairs, 'pair')}, {counted(merged.annotations, 'annotation')}"
        say(Console(), f"{merged.run}: {what} of {counted(len(runs), 'run')}")
