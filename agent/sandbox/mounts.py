"""Folders and files of the host that every sandbox of a run may read."""

from __future__ import annotations

import os
import platform
import stat
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from agent.errors import UsageError
from agent.sandbox.interpreter import as_unprivileged

_OWN = "bin boot dev envs etc inside lib lib32 lib64 libx32 proc run sbin staging sys tmp usr var work"
RESERVED = frozenset(_OWN.split())
"""The folders, right below the root, that are a sandbox's own."""

_READABLE = 'test -r "$0" && { test ! -d "$0" || test -x "$0"; }'


@dataclass(frozen=True)
class Mount:
    """`host`, without links in it, is to be read at `box`."""

    host: Path
    target: str


def read_mounts(texts: Iterable[str]) -> tuple[Mount, ...]:
    """Return what `HOST:BOX` texts mean. Looks at the host's files.

    Raises:
        UsageError: one is malformed, does not exist, lies in a place of the sandbox's own, or leads to a socket.
    """
    mounts = tuple(map(_parse_mount, texts))
    places = [PurePosixPath(mount.target) for mount in mounts]
    for number, place in enumerate(places):
        if any(place.is_relative_to(other) or other.is_relative_to(place) for other in places[:number]):
            raise UsageError(f"--mount-ro: {place} is given to two mounts, or lies in another one")
    return mounts


def refuse_hiding(mounts: Iterable[Mount], folders: Iterable[str]) -> None:
    """See to it that no mount hides a folder that the sandbox needs.

    Raises:
        UsageError: one does.
    """
    for mount in mounts:
        for folder in folders:
            if PurePosixPath(mount.target).is_relative_to(folder) or PurePosixPath(folder).is_relative_to(mount.target):
                raise UsageError(f"--mount-ro: {mount.target} would hide {folder}, where the sandbox's Python is")


def _parse_mount(text: str) -> Mount:
    host, separator, target = text.rpartition(":")
    if not separator or not host:
        raise UsageError(f"--mount-ro {text}: expected HOST:BOX, such as /srv/data:/data")
    return Mount(_resolve_host(text, host), _parse_target(text, target))


def _parse_target(text: str, target: str) -> str:
    place = PurePosixPath(target)
    if not place.is_absolute() or ".." in place.parts or not target.isprintable() or target.startswith("//"):
        raise UsageError(f"--mount-ro {text}: the place in the sandbox must be an absolute path without '..'")
    if len(place.parts) < 2 or place.parts[1] in RESERVED:
        raise UsageError(f"--mount-ro {text}: {place} is the sandbox's own; choose another place, such as /data")
    return str(place)


def _resolve_host(text: str, host: str) -> Path:
    if not Path(host).is_absolute() or not host.isprintable():
        raise UsageError(f"--mount-ro {text}: {host} must be an absolute path")
    try:
        path = Path(host).resolve(strict=True)
        mode = path.stat().st_mode
    except (OSError, RuntimeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it leads in a circle"
        raise UsageError(f"--mount-ro {text}: {host} cannot be mounted: {why}") from error
    if path == Path("/") or path.is_relative_to("/proc") or path.is_relative_to("/dev") or path.is_relative_to("/sys"):
        raise UsageError(f"--mount-ro {text}: {path} would show all of the host: name the folder that is needed")
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise UsageError(f"--mount-ro {text}: {path} is no folder and no file; sockets and devices are never mounted")
    if special_file := next(_iterate_special_files(path), None):
        raise UsageError(
            f"--mount-ro {text}: {special_file} is a socket, pipe or device. A program could reach "
            "the host through it. Name a folder without one."
        )
    _refuse_unreadable(text, path)
    return path


def _iterate_special_files(path: Path) -> Iterator[str]:
    """Yield what is no file, folder or link below a path."""
    folders = [str(path)] if path.is_dir() else []
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif not (entry.is_symlink() or entry.is_file(follow_symlinks=False)):
                        yield entry.path
        except OSError:
            continue  # what cannot be listed by its user cannot be entered by the sandbox's


def _refuse_unreadable(text: str, path: Path) -> None:
    """Root may read what the sandbox's user may not; whether it may is tried."""
    user = as_unprivileged()
    if not user or platform.system() != "Linux":
        return
    command = ["/bin/sh", "-c", _READABLE, str(path)]
    if subprocess.run(command, env={}, cwd="/", capture_output=True, check=False, **user).returncode != 0:
        raise UsageError(
            f"--mount-ro {text}: programs run as nobody, who may not read {path}: it must be readable by all, and lie "
            "in folders that all may enter"
        )
