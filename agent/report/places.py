"""Finds the run that a report is about, and the ablation that it is part of."""

from __future__ import annotations

from pathlib import Path

from agent.errors import RunFolderError
from agent.report.ablation import FILE, Ablation, read_ablation
from agent.store import files

_FIRST = "full"


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
        # a name from a file: it may not lead out of the folder
        if name == Path(name).name and (folder / name / files.MANIFEST).is_file():
            return folder / name, ablation
    raise RunFolderError(f"{folder}: holds {FILE}, but the folder of none of its runs ({', '.join(names)})")
