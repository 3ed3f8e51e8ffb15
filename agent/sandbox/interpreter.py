"""Interpreters: what is known of one, and those of this machine that an unprivileged user can run."""

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
"""The uid and gid of what runs in a sandbox, and on the host as well when this process is root: nobody's."""

_DEADLINE = 20.0
_OLDEST = (3, 8)
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin")
_STORES = ("/nix/store", "/gnu/store")
_ASK = """
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
    """The interpreter an environment is for: which wheels it can use.

    `version` is the minor version, `full` has the patch as well where it is known; `libc` is `glibc` or `musl`.
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
    """A Python on the host. `folders` are what a sandbox must see of the host to run it, besides the system's own."""

    path: str
    version: str
    tag: InterpreterTag
    folders: tuple[str, ...]


def as_unprivileged() -> dict[str, Any]:
    """Return how a process is started by root: as a user without any right of its own; {} for other users."""
    if os.geteuid() != 0:
        return {}
    return {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": []}


def find_interpreter(python: str | None = None) -> Interpreter:
    """Return an interpreter of the minor version `python`, as `3.9`, that the sandbox's user can run. Blocks.

    Without a version it is this process's own, else the system's.

    Raises:
        InterpreterUnavailable: none of that version can be run by an unprivileged user; names the versions that can.
        SandboxUnavailable: none at all can.
    """
    unusable = []
    for path in _candidates(python):
        interpreter = _ask(path)
        if interpreter is not None and python in (None, interpreter.tag.version):
            return interpreter
        unusable.append(str(path))
    if python is None:
        raise SandboxUnavailable(
            "sandboxes and the installation of packages need a Python 3.8 or later that an unprivileged user can run, "
            "and there is none: install the system's (apt install python3), or run as the user who owns this one"
        )
    usable = filter(None, map(_ask, {*_candidates(None), *_every_python()}))
    versions = sorted({each.tag.version for each in usable}, key=lambda version: int(version.partition(".")[2]))
    closed = f" ({', '.join(unusable)} cannot be run by the sandbox's user)" if unusable else ""
    raise InterpreterUnavailable(
        f"there is no Python {python} that bubblewrap sandboxes can run{closed}; there is: {', '.join(versions)}. "
        f"Put it into /opt/python{python}, where everybody may read it, or use --sandbox docker"
    )


def _candidates(python: str | None) -> list[Path]:
    """Return the executables that may be of a minor version, without one those of this process and of the system."""
    paths = []
    if python in (None, _OWN_VERSION):
        paths.append(Path(getattr(sys, "_base_executable", "") or sys.executable))
    if python is None:
        # not the PATH's: that may be a shim in a folder that the sandbox's user cannot enter
        paths += [Path(folder, name) for folder in _FOLDERS for name in (f"python{_OWN_VERSION}", "python3")]
    else:
        paths += [path for path in _every_python() if path.name == f"python{python}"]
    return list(dict.fromkeys(path.resolve() for path in paths if path.is_file()))


def _ask(path: Path) -> Interpreter | None:
    """Run an interpreter as the sandbox's user: it works when it can say what it is."""
    try:
        done = subprocess.run(
            [str(path), "-I", "-S", "-c", _ASK],
            capture_output=True,
            cwd="/",
            env={},
            timeout=_DEADLINE,
            check=True,
            **as_unprivileged(),
        )
        facts = json.loads(done.stdout)
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
    return Interpreter(facts["path"], "{}.{}.{}".format(*version), tag, _folders(facts["prefix"]))


def _folders(prefix: str) -> tuple[str, ...]:
    def within(folder: str) -> bool:
        return prefix == folder or prefix.startswith(f"{folder}/")

    if any(map(within, _SYSTEM)):
        return ()
    return (next(filter(within, _STORES), prefix),)


def _every_python() -> Iterator[Path]:
    """Yield every executable that is named after a minor version, the system's and the path's first; links resolved."""
    for folder in _program_folders():
        with suppress(OSError):
            for path in sorted(folder.iterdir()):
                if _NAME.fullmatch(path.name) and path.is_file() and not _is_shim(path):
                    yield path.resolve()


def _program_folders() -> Iterator[Path]:
    yield from map(Path, _FOLDERS)
    yield from (Path(folder) for folder in os.get_exec_path() if Path(folder).is_absolute())
    home = Path("~").expanduser()
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    pyenv = Path(os.environ.get("PYENV_ROOT") or home / ".pyenv") / "versions"
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv" / "python")
    for versions in (Path("/opt"), pyenv, uv):
        with suppress(OSError):  # PYENV_ROOT and its like may be left from another user's shell
            yield from sorted(versions.glob("*/bin"))


def _is_shim(path: Path) -> bool:
    # a script that starts whichever version the current folder asks for
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False
