"""Finds the data files that ship with the package: prompts, graphs, sandbox images."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_folder(name: str) -> Path:
    """Return the folder `prompts`, `graphs` or `sandbox_images`: the wheel's copy, else the checkout's.

    Raises:
        FileNotFoundError: the installation lacks the folder.
    """
    for folder in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"the installation lacks its data folder {name!r}: install the package again")
