"""Finds the run that a report is about, and the ablation that it is part of."""

from __future__ import annotations

import re
from pathlib import Path

from agent.errors import RunFolderError
from agent.report.ablation import FILE, Ablation, read_ablation
from agent.store import files

_FIRST = "full"
_FOLDER = re.compile(r"(?!\.)[\w.-]{1,200}", re.ASCII)


def find_run(folder: Path) -> tuple[Path, Ablation | None]:
    """Return a run's folder and the ablation in or above it.

    The folder of an ablation stands for its run `full`, or the first one that is there.

    Raises:
        RunFolderError: the ablation is damaged, or holds no run.
    """
    found = next((place for place in (folder, folder.resolve().parent) if (place / FILE).is_file()), None)
    ablation = None if found is None else read_ablation(found / FILE)
    if ablation is None or found != folder or (folder / files.MANIFEST).is_file():
        return folder, ablation
    names = [_FIRST, *(row.variant for row in ablation.rows)]
    for name in names:
        # a name from a file, and perhaps a link beside it: neither may lead out of the folder
        if _FOLDER.fullmatch(name) and not (folder / name).is_symlink() and (folder / name / files.MANIFEST).is_file():
            return folder / name, ablation
    raise RunFolderError(f"{folder}: holds {FILE}, but the folder of none of its runs ({', '.join(names)})")
