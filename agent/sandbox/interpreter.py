"""Finds Python interpreters on this machine that an unprivileged user can run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.errors import InterpreterUnavailable, SandboxUnavailable

UNPRIVILEGED = 65534
"""The uid and gid of programs in a sandbox. If this process is root, sandbox processes on the host use these ids."""

_DEADLINE = 20.0
_OLDEST = (3, 8)
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin")
_STORES = ("/nix/store", "/gnu/store")
_PROBE = """
import _ctypes, json, os, resource, select, sys
known = "CS_GNU_LIBC_VERSION" in os.confstr_names
libc, _, version = (os.confstr("CS_GNU_LIBC_VERSION") if known else "").partition(" ")
print(json.dumps({
    "path": sys.executable, "prefix": sys.base_prefix, "version": list(sys.version_info[:3]),
    "machine": os.uname().machine, "libc": libc or "musl", "libc_version": version or "1.1",
    "implementation": {"cpython": "cp", "pypy": "pp"}.get(sys.implementation.name, sys.implementation.name),
}))
"""


_NAME = re.compile(r"python3\.\d{1,2}")
_OWN_VERSION = "{}.{}".format(*sys.version_info)
_FOLDERS = ("/usr/local/bin", "/usr/bin")


@dataclass(frozen=True)
class InterpreterTag:
    """The properties of an interpreter that determine which wheels it can use.

    `version` is the minor version, such as `3.9`. `full` is the version with the patch level, or empty if unknown.
    `libc` is `glibc` or `musl`.
    """

    version: str
    implementation: str = "cp"
    machine: str = "x86_64"
    libc: str = "glibc"
    libc_version: str = "2.36"
    full: str = ""

    def __str__(self) -> str:
        return f"{self.implementation}{self.version.replace('.', '')}-{self.libc}{self.libc_version}-{self.machine}"


@dataclass(frozen=True)
class Interpreter:
    """A Python interpreter on the host. To run it, a sandbox needs `folders` in addition to the system's folders."""

    path: str
    version: str
    tag: InterpreterTag
    folders: tuple[str, ...]


def as_unprivileged() -> dict[str, Any]:
    """Return subprocess options that drop root's privileges. Returns no options for other users."""
    if os.geteuid() != 0:
        return {}
    return {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": []}


def find_interpreter(python: str | None = None) -> Interpreter:
    """Return an interpreter that the sandbox's user can run. Blocks.

    `python` is a minor version such as `3.9`. By default, this process's interpreter is tried first, then the system's.

    Raises:
        InterpreterUnavailable: an unprivileged user cannot run any Python of that version. The message lists the
            available versions.
        SandboxUnavailable: an unprivileged user cannot run any interpreter.
    """
    unusable = []
    for path in _list_candidates(python):
        interpreter = _probe(path)
        if interpreter is not None and python in (None, interpreter.tag.version):
            return interpreter
        unusable.append(str(path))
    if python is None:
        raise SandboxUnavailable(
            "Sandboxes and package installation need Python 3.8 or later. An unprivileged user must be able to run it. "
            "Install the system's Python (apt install python3), or run agent as the owner of the current interpreter."
        )
    usable = filter(None, map(_probe, {*_list_candidates(None), *_iterate_pythons()}))
    versions = sorted({interpreter.tag.version for interpreter in usable}, key=lambda v: int(v.partition(".")[2]))
    hint = f" (the sandbox's user cannot run {', '.join(unusable)})" if unusable else ""
    raise InterpreterUnavailable(
        f"bubblewrap sandboxes cannot run Python {python}{hint}. Available versions: {', '.join(versions)}. "
        f"Install Python {python} in /opt/python{python} with read access for everybody, or pass --sandbox docker."
    )


def _list_candidates(python: str | None) -> list[Path]:
    """Return the executables to try for a minor version.

    By default, returns the executables of this process and of the system.
    """
    paths = []
    if python in (None, _OWN_VERSION):
        paths.append(Path(getattr(sys, "_base_executable", "") or sys.executable))
    if python is None:
        # do not search the PATH, where python3 may be a shim in a folder that the sandbox's user cannot enter
        paths += [Path(folder, name) for folder in _FOLDERS for name in (f"python{_OWN_VERSION}", "python3")]
    else:
        paths += [path for path in _iterate_pythons() if path.name == f"python{python}"]
    return list(dict.fromkeys(path.resolve() for path in paths if path.is_file()))


def _probe(path: Path) -> Interpreter | None:
    """Run an interpreter as the sandbox's user and return its properties. Returns None if it fails or is too old."""
    try:
        process = subprocess.run(
            [str(path), "-I", "-S", "-c", _PROBE],
            capture_output=True,
            cwd="/",
            env={},
            timeout=_DEADLINE,
            check=True,
            **as_unprivileged(),
        )
        facts = json.loads(process.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    version = tuple(facts["version"])
    if version < _OLDEST:
        return None
    tag = InterpreterTag(
        version="{}.{}".format(*version),
        implementation=facts["implementation"],
        machine=facts["machine"],
        libc=facts["libc"],
        libc_version=facts["libc_version"],
        full="{}.{}.{}".format(*version),
    )
    return Interpreter(facts["path"], "{}.{}.{}".format(*version), tag, _find_folders(facts["prefix"]))


def _find_folders(prefix: str) -> tuple[str, ...]:
    def is_below(folder: str) -> bool:
        return prefix == folder or prefix.startswith(f"{folder}/")

    if any(map(is_below, _SYSTEM)):
        return ()
    return (next(filter(is_below, _STORES), prefix),)


def _iterate_pythons() -> Iterator[Path]:
    """Iterate over executables such as python3.9, starting with system folders and the PATH. Resolves links."""
    for folder in _iterate_program_folders():
        with suppress(OSError):
            for path in sorted(folder.iterdir()):
                if _NAME.fullmatch(path.name) and path.is_file() and not _is_shim(path):
                    yield path.resolve()


def _iterate_program_folders() -> Iterator[Path]:
    yield from map(Path, _FOLDERS)
    yield from (Path(folder) for folder in os.get_exec_path() if Path(folder).is_absolute())
    home = Path("~").expanduser()
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    pyenv = Path(os.environ.get("PYENV_ROOT") or home / ".pyenv") / "versions"
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv" / "python")
    for versions in (Path("/opt"), pyenv, uv):
        with suppress(OSError):  # PYENV_ROOT and similar variables may name a folder of another user
            yield from sorted(versions.glob("*/bin"))


def _is_shim(path: Path) -> bool:
    # a shim is a script that starts the version selected for the current folder
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False
