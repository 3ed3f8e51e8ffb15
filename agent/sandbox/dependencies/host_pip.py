"""The pip of this Python, which builders may be given in place of their own."""

from __future__ import annotations

import tarfile
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import BinaryIO

from packaging.specifiers import SpecifierSet


def package() -> Path:
    """Return pip's folder."""
    import pip

    return Path(pip.__file__).parent


def runs_on(version: str) -> bool:
    """Say whether pip runs on an interpreter of this minor version, as far as its metadata tells."""
    try:
        needed = str(metadata("pip").json.get("requires_python") or "")
    except PackageNotFoundError:
        return True
    return not needed or SpecifierSet(needed).contains(f"{version}.99")


def pack(folder: str, stream: BinaryIO) -> None:
    """Write pip, to be unpacked into `folder`, as a tar archive."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if "__pycache__" in entry.name:
            return None
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mode = 0o755 if entry.isdir() else 0o644
        return entry

    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.add(package(), f"{folder}/pip", filter=plain)
