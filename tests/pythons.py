"""Other Pythons than this one: copied to where every user may run them, or into an image."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

import docker
import pytest

_LEFT_OUT = shutil.ignore_patterns("test", "__pycache__", "idlelib", "*.a", "config-*")
_BASE = "python:3.11-slim-bookworm"
_DOCKERFILE = """\
FROM {base}
COPY python /opt/other
RUN ln -sf /opt/other/bin/python{version} /usr/local/bin/python3
"""


def copy_python(version: str, into: Path) -> Path:
    """Copy a Python of pyenv's into an empty folder; skip the test where there is none."""
    place = Path("~/.pyenv/versions").expanduser()
    found = sorted(place.glob(f"{version}.*")) if place.is_dir() else []
    if not found:
        pytest.skip(f"needs a Python {version} of pyenv's, to be copied")
    shutil.copytree(found[0], into, symlinks=True, ignore=_LEFT_OUT, dirs_exist_ok=True)
    for path in (*into.glob("bin/python3.*"), *into.glob("lib/*.so*"), *into.glob("lib/python3*/lib-dynload/*.so")):
        _find_libraries_beside(path, str(found[0] / "lib"))
    return into


def _find_libraries_beside(path: Path, former: str) -> None:
    """Have a program look for its libraries where it is now, and not where it was built for."""
    content = path.read_bytes()
    if not path.is_symlink() and content.startswith(b"\x7fELF"):
        beside = b"$ORIGIN/../lib".ljust(len(former), b"\0")
        path.write_bytes(content.replace(former.encode() + b"\0", beside + b"\0"))


def build_image(version: str, python: Path, tag: str) -> None:
    """Build an image whose Python is a copied one; skip the test where the image it builds on is missing."""
    client = docker.from_env(timeout=300)
    try:
        if not client.api.images(_BASE):
            pytest.skip(f"needs the image {_BASE}, to build on")
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
    """Remove an image."""
    client = docker.from_env()
    try:
        client.images.remove(tag, force=True)
    finally:
        client.close()
