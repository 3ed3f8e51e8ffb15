"""A disk of half a megabyte, for what a full one does; root mounts it, in the table of mounts that all tests share."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SOURCE = "the-disk-of-a-test"
"""What the table of mounts names as the source of such a disk."""


def remount(folder: Path, options: str) -> None:
    """Give the disk at that folder other options, as a larger size."""
    _mount("-o", f"remount,{options}", str(folder))


@contextmanager
def tiny_disk(folder: Path) -> Iterator[Path]:
    """Make the folder, a file system of half a megabyte, for as long as it is used; skip the test where none may be."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tiny file system takes root")
    folder.mkdir()
    try:
        _mount("-t", "tmpfs", "-o", "size=512k", SOURCE, str(folder))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system may be mounted here: {error}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)
