"""Copies of other Python versions, in folders that are accessible to every user or in Docker images."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

import docker
import pytest

_IGNORED = shutil.ignore_patterns("test", "__pycache__", "idlelib", "*.a", "config-*")
_BASE = "python:3.11-slim-bookworm"
_DOCKERFILE = """\
FROM {base}
COPY python /opt/other
RUN ln -sf /opt/other/bin/python{version} /usr/local/bin/python3
"""


def copy_python(version: str, into: Path) -> Path:
    """Copy a Python from pyenv into an empty folder. Skip the test if pyenv has no such version."""
    place = Path("~/.pyenv/versions").expanduser()
    versions = sorted(place.glob(f"{version}.*")) if place.is_dir() else []
    if not versions:
        pytest.skip(f"needs Python {version} from pyenv")
    shutil.copytree(versions[0], into, symlinks=True, ignore=_IGNORED, dirs_exist_ok=True)
    for path in (*into.glob("bin/python3.*"), *into.glob("lib/*.so*"), *into.glob("lib/python3*/lib-dynload/*.so")):
        _patch_library_path(path, str(versions[0] / "lib"))
    return into


def _patch_library_path(path: Path, old_folder: str) -> None:
    """Patch a binary to load its libraries from its new location."""
    content = path.read_bytes()
    if not path.is_symlink() and content.startswith(b"\x7fELF"):
        library_path = b"$ORIGIN/../lib".ljust(len(old_folder), b"\0")
        path.write_bytes(content.replace(old_folder.encode() + b"\0", library_path + b"\0"))


def build_image(version: str, python: Path, tag: str) -> None:
    """Build an image with a copied Python. Skip the test if the base image is missing."""
    client = docker.from_env(timeout=300)
    try:
        if not client.api.images(_BASE):
            pytest.skip(f"needs the base image {_BASE}")
        context = io.BytesIO()
        with tarfile.open(fileobj=context, mode="w") as archive:
            archive.add(python, "python")
            text = _DOCKERFILE.format(base=_BASE, version=version).encode()
            entry = tarfile.TarInfo("Dockerfile")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
        context.seek(0)
        client.images.build(fileobj=context, custom_context=True, tag=tag, rm=True, network_mode="none")
    finally:
        client.close()


def remove_image(tag: str) -> None:
    client = docker.from_env()
    try:
        client.images.remove(tag, force=True)
    finally:
        client.close()
