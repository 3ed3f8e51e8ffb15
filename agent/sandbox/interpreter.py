"""Finds the interpreter that bubblewrap sandboxes run: one that an unprivileged user can read."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.errors import SandboxUnavailable
from agent.sandbox.wheels import InterpreterTag

_ASK = """
import json, platform, sys
libc, version = platform.libc_ver()
print(json.dumps({
    "version": "%d.%d" % sys.version_info[:2], "full": platform.python_version(), "prefix": sys.base_prefix,
    "machine": platform.machine(), "libc": libc or "musl", "libc_version": version or "1.2",
    "implementation": "cp" if sys.implementation.name == "cpython" else sys.implementation.name,
}))
"""
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin")


@dataclass(frozen=True)
class Interpreter:
    """A Python on the host. `folders` are what a sandbox must see of the host to run it, besides the system's own."""

    path: str
    version: str
    tag: InterpreterTag
    folders: tuple[str, ...]


def find_interpreter() -> Interpreter:
    """Return this process's own interpreter where anybody can read it, else the system's.

    Raises:
        SandboxUnavailable: none can be read by an unprivileged user.
    """
    for candidate in _candidates():
        path = Path(candidate).resolve()
        if path.is_file() and _anyone_can_read(path):
            found = _ask(str(path))
            if found is not None and _anyone_can_read(Path(found.folders[0] if found.folders else found.path)):
                return found
    raise SandboxUnavailable(
        "no Python 3.8 or later that an unprivileged user can read: install the system's (apt install python3), "
        "or run as the user who owns this one"
    )


def _candidates() -> Iterator[str]:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    yield getattr(sys, "_base_executable", "") or sys.executable
    for folder in ("/usr/local/bin", "/usr/bin"):
        yield f"{folder}/{version}"
        yield f"{folder}/python3"


def _anyone_can_read(path: Path) -> bool:
    """Return whether the sandbox's user reaches a file: as root, that is a user without rights of its own."""
    if os.geteuid() != 0:
        return os.access(path, os.R_OK)
    others = [stat.S_IXOTH] * len(path.parents) + [stat.S_IROTH]
    places = [*reversed(path.parents), path]
    return all(place.stat().st_mode & right for place, right in zip(places, others, strict=True))


def _ask(path: str) -> Interpreter | None:
    done = subprocess.run([path, "-I", "-c", _ASK], capture_output=True, text=True, cwd="/", check=False)
    if done.returncode != 0:
        return None
    told = json.loads(done.stdout)
    if tuple(map(int, told["version"].split("."))) < (3, 8):
        return None
    tag = InterpreterTag(
        version=told["version"],
        implementation=told["implementation"],
        machine=told["machine"],
        libc=told["libc"],
        libc_version=told["libc_version"],
    )
    prefix = told["prefix"]
    inside = any(prefix == folder or prefix.startswith(f"{folder}/") for folder in _SYSTEM)
    return Interpreter(path, told["full"], tag, () if inside else (prefix,))
