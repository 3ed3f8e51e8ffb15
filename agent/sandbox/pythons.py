"""Where this machine keeps interpreters of other versions than this process's own."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_NAME = re.compile(r"python3\.\d{1,2}")
_FOLDERS = ("/usr/local/bin", "/usr/bin")


def every_python() -> Iterator[Path]:
    """Yield every executable that is named after a minor version, the system's and the path's first; links resolved."""
    seen: dict[Path, None] = {}
    for folder in _folders():
        try:
            found = sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
        except OSError:
            continue
        for path in found:
            if path.is_file() and not _is_shim(path):
                seen.setdefault(path.resolve())
    yield from seen


def named(version: str) -> Iterator[Path]:
    """Yield the executables that are named after a minor version, and this process's own where it is of that one."""
    if version == "{}.{}".format(*sys.version_info):
        own = Path(getattr(sys, "_base_executable", "") or sys.executable)
        if own.is_file():
            yield own.resolve()
    yield from (path for path in every_python() if path.name == f"python{version}")


def _folders() -> Iterator[Path]:
    yield from map(Path, _FOLDERS)
    yield from (Path(folder) for folder in os.get_exec_path() if Path(folder).is_absolute())
    for place in (Path("/opt"), *_version_managers()):
        try:
            yield from sorted(place.glob("*/bin"))
        except OSError:
            # PYENV_ROOT and its like may be left from another user's shell
            continue


def _version_managers() -> Iterator[Path]:
    home = Path("~").expanduser()
    yield Path(os.environ.get("PYENV_ROOT") or home / ".pyenv") / "versions"
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    yield Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv" / "python")


def _is_shim(path: Path) -> bool:
    # a script that starts whichever version the current folder asks for
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False
