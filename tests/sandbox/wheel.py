"""Wheels made on the spot, so that tests of environments need no index."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path


def make_wheel(folder: Path, name: str, files: Mapping[str, str], version: str = "1.0") -> Path:
    """Write a wheel with these files (path in the wheel: text) and return it."""
    info = f"{name}-{version}.dist-info"
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={_digest(text)},{len(text.encode())}\n" for path, text in content.items())
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**content, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)
    return wheel


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
