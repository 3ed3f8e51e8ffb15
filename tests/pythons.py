"""Copies of other Python versions, in folders that are accessible to every user or in Docker images."""

from __future__ import annotations

import io
import shutil
import tarfile
from contextlib import closing
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


def build_python_image(version: str, python: Path, tag: str) -> None:
    """Build an image with a copied Python. Skip the test if the base image is missing."""
    with closing(docker.from_env()) as client:
        if not client.api.images(_BASE):
            pytest.skip(f"needs the base image {_BASE}")
    build_image(tag, _DOCKERFILE.format(base=_BASE, version=version), python)


def build_image(tag: str, dockerfile: str, python: Path | None = None) -> None:
    """Build an image from a Dockerfile, and a folder `python` if one is passed."""
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        if python is not None:
            archive.add(python, "python")
        entry = tarfile.TarInfo("Dockerfile")
        entry.size = len(dockerfile)
        archive.addfile(entry, io.BytesIO(dockerfile.encode()))
    context.seek(0)
    with closing(docker.from_env(timeout=300)) as client:
        client.images.build(fileobj=context, custom_context=True, tag=tag, rm=True, network_mode="none")


def remove_image(tag: str) -> None:
    with closing(docker.from_env()) as client:
        client.images.remove(tag, force=True)
