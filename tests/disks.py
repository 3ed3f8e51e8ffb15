"""A file system of half a megabyte for tests of a full disk. Mounting needs root; all tests share the mount table."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SOURCE = "the-disk-of-a-test"
"""The source of these file systems in the mount table."""


def remount(folder: Path, options: str) -> None:
    """Change options of a mounted file system, such as its size."""
    _mount("-o", f"remount,{options}", str(folder))


@contextmanager
def tiny_disk(folder: Path) -> Iterator[Path]:
    """Mount a file system of half a megabyte at a new folder. Skip the test if that is not possible."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    folder.mkdir()
    try:
        _mount("-t", "tmpfs", "-o", "size=512k", SOURCE, str(folder))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"cannot mount a file system here: {error}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)
