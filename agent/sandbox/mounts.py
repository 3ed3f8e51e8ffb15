"""Host folders and files that are mounted read-only in every sandbox of a run."""

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

_SANDBOX_FOLDERS = (
    "bin boot dev envs etc inside lib lib32 lib64 libx32 proc run sbin staging sys tmp toolchains usr var work"
)
RESERVED = frozenset(_SANDBOX_FOLDERS.split())
"""The top-level folders of a sandbox, where nothing can be mounted."""

_READABLE = 'test -r "$0" && { test ! -d "$0" || test -x "$0"; }'


@dataclass(frozen=True)
class Mount:
    """A read-only mount of the resolved path `host` at `target` in the sandbox."""

    host: Path
    target: str


def read_mounts(texts: Iterable[str]) -> tuple[Mount, ...]:
    """Parse the `HOST:BOX` values of mount_ro and check the host paths.

    Raises:
        UsageError: a value is malformed, a host path cannot be mounted, or a target is reserved or overlaps another.
    """
    mounts = tuple(map(_parse_mount, texts))
    targets = [PurePosixPath(mount.target) for mount in mounts]
    for number, target in enumerate(targets):
        if any(target.is_relative_to(other) or other.is_relative_to(target) for other in targets[:number]):
            raise UsageError(f"mount_ro: {target} overlaps with the target of another mount.")
    return mounts


def check_hidden_folders(mounts: Iterable[Mount], folders: Iterable[str]) -> None:
    """Check that no mount hides a folder that the sandbox needs.

    Raises:
        UsageError: a mount hides a folder that the sandbox needs.
    """
    for mount in mounts:
        for folder in folders:
            if PurePosixPath(mount.target).is_relative_to(folder) or PurePosixPath(folder).is_relative_to(mount.target):
                raise UsageError(f"mount_ro: {mount.target} would hide {folder}, which contains the sandbox's Python.")


def _parse_mount(text: str) -> Mount:
    host, separator, target = text.rpartition(":")
    if not separator or not host:
        raise UsageError(f"mount_ro {text}: expected HOST:BOX, such as /srv/data:/data.")
    return Mount(_resolve_host(text, host), _parse_target(text, target))


def _parse_target(text: str, target: str) -> str:
    path = PurePosixPath(target)
    if not path.is_absolute() or ".." in path.parts or not target.isprintable() or target.startswith("//"):
        raise UsageError(f"mount_ro {text}: the path in the sandbox must be absolute and must not contain '..'.")
    if len(path.parts) < 2 or path.parts[1] in RESERVED:
        raise UsageError(f"mount_ro {text}: {path} is reserved. Choose another target, such as /data.")
    return str(path)


def _resolve_host(text: str, host: str) -> Path:
    if not Path(host).is_absolute() or not host.isprintable():
        raise UsageError(f"mount_ro {text}: {host} must be an absolute path.")
    try:
        path = Path(host).resolve(strict=True)
        mode = path.stat().st_mode
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its links form a cycle"
        raise UsageError(f"mount_ro {text}: cannot mount {host}: {reason}.") from error
    if path == Path("/") or path.is_relative_to("/proc") or path.is_relative_to("/dev") or path.is_relative_to("/sys"):
        raise UsageError(f"mount_ro {text}: {path} would expose the whole host. Mount a smaller folder.")
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise UsageError(
            f"mount_ro {text}: {path} is neither a folder nor a regular file. A socket or device cannot be mounted."
        )
    if special_file := next(_iterate_special_files(path), None):
        raise UsageError(
            f"mount_ro {text}: {special_file} is a socket, pipe or device. A program could reach "
            "the host through it. Choose a folder without such files."
        )
    if not is_readable(path):
        raise UsageError(
            f"mount_ro {text}: the sandbox's user (nobody) cannot read {path}. "
            "Give everybody read access to this path and its parent folders."
        )
    return path


def _iterate_special_files(path: Path) -> Iterator[str]:
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
            continue  # the sandbox's user cannot open this folder either


def is_readable(path: Path) -> bool:
    """Return whether the sandbox's user can read the path. If this process is not root, that user is its own."""
    user = as_unprivileged()
    if not user or platform.system() != "Linux":
        return True
    command = ["/bin/sh", "-c", _READABLE, str(path)]
    return subprocess.run(command, env={}, cwd="/", capture_output=True, check=False, **user).returncode == 0
