"""Finds the run that a report is about, and the ablation that it is part of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from agent.errors import RunFolderError
from agent.evaluation.ablation_table import AblationTable
from agent.evaluation.ablation_text import read_ablation
from agent.store import files

_FIRST = "full"
_FOLDER = re.compile(r"(?!\.)[\w.-]{1,200}", re.ASCII)


@dataclass(frozen=True)
class Place:
    """A run's folder, the ablation in or above it, and what both are called together."""

    run: Path
    title: str
    ablation: AblationTable | None = None


def find_run(folder: Path) -> Place:
    """Return the run that a folder is, or of an ablation's the run `full`, or the first one that is there.

    Raises:
        RunFolderError: the ablation is damaged, or holds no run.
    """
    own = folder.resolve().name
    found = next((place for place in (folder, folder.resolve().parent) if (place / files.ABLATION).is_file()), None)
    if found is None:
        return Place(folder, own)
    ablation = read_ablation(found / files.ABLATION)
    if found != folder:
        return Place(folder, f"{found.name}/{own}", ablation)
    if (folder / files.MANIFEST).is_file():
        return Place(folder, own, ablation)
    names = [_FIRST, *(row.variant for row in ablation.rows)]
    for name in names:
        # a name from a file, and perhaps a link beside it: neither may lead out of the folder
        if _FOLDER.fullmatch(name) and not (folder / name).is_symlink() and (folder / name / files.MANIFEST).is_file():
            return Place(folder / name, f"{own}/{name}", ablation)
    raise RunFolderError(f"{folder}: holds {files.ABLATION}, but the folder of none of its runs ({', '.join(names)})")
