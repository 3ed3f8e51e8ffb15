"""Creates control groups, which limit all processes of a bubblewrap sandbox together.

In cgroup version 1, only root can create groups, unless an administrator has delegated a folder. In version 2, users
can create groups below a delegated group, such as a systemd session group. If neither is possible, no limit is
enforced, and `missing` contains the reasons. A group's name begins with the PID of its creator. Later runs use this PID
to remove the groups of processes that have exited.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent.errors import SandboxError
from agent.sandbox.base import SandboxLimits
from agent.sandbox.owner import PREFIX

CONTROLLERS = ("memory", "pids", "cpu")
_EXTRA_PROCESSES = 8
_PERIOD = 100_000
_REMOVAL_SECONDS = 2.0


@dataclass(frozen=True)
class Cgroup:
    """The control group of one sandbox. It has one folder per hierarchy.

    `counter` is the file in which the kernel counts processes that it killed because memory ran out.
    """

    folders: Sequence[Path]
    counter: Path | None

    def count_kills(self) -> int:
        """Return how many processes in this group the kernel has killed because memory ran out."""
        if self.counter is None:
            return 0
        with suppress(OSError):
            for line in self.counter.read_text(encoding="ascii").splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0

    def remove(self) -> None:
        """Remove the group once its processes have exited. Blocks, but gives up after a few seconds."""
        deadline = time.monotonic() + _REMOVAL_SECONDS
        while not all(map(_try_remove, self.folders)) and time.monotonic() < deadline:
            time.sleep(0.005)


@dataclass(frozen=True)
class ControlGroups:
    """Creates a control group for each sandbox. Methods block and are thread-safe.

    `folders` maps each available controller to the folder for new groups. In cgroup version 2, all controllers have the
    same folder. `missing` maps each unavailable controller to the reason.
    """

    folders: Mapping[str, Path]
    missing: Mapping[str, str]
    version: int = 2

    @classmethod
    def find(cls, root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> ControlGroups:
        """Find the folders in which this process may create groups. Removes groups of exited processes from them."""
        version = 2 if (root / "cgroup.controllers").is_file() else 1
        parents, missing = (_find_delegated if version == 2 else _find_writable)(root, _read_groups(membership))
        folders = {name: parent / PREFIX for name, parent in parents.items()}
        try:
            for folder in set(folders.values()):
                folder.mkdir(exist_ok=True)
                if version == 2:
                    _write(folder / "cgroup.subtree_control", " ".join(f"+{name}" for name in folders))
                for group in folder.iterdir():
                    if group.is_dir() and not Path("/proc", group.name.partition("-")[0]).exists():
                        _try_remove(group)
        except OSError as error:
            return cls({}, dict.fromkeys(CONTROLLERS, f"cannot create a control group: {error}"))
        return cls(folders, missing, version)

    def enter(self, pid: int, limits: SandboxLimits) -> Cgroup | None:
        """Put a process and its future children into a new group. Returns None if no controller is available.

        Raises:
            SandboxError: the kernel rejects the group or a limit.
        """
        if not self.folders:
            return None
        name = f"{os.getpid()}-{secrets.token_hex(4)}"
        memory = self.folders.get("memory")
        events = "memory.events" if self.version == 2 else "memory.oom_control"
        paths = {folder / name for folder in self.folders.values()}
        group = Cgroup(sorted(paths), None if memory is None else memory / name / events)
        try:
            for path in group.folders:
                path.mkdir()
            for controller, folder in self.folders.items():
                for setting, value in _list_settings(controller, self.version, limits):
                    _write(folder / name / setting, value)
            for path in group.folders:
                _write(path / "cgroup.procs", str(pid))
        except OSError as error:
            group.remove()
            raise SandboxError(f"cannot put the sandbox into its control group: {error}") from error
        return group


def _find_writable(root: Path, paths: Mapping[str, str]) -> tuple[Mapping[str, Path], Mapping[str, str]]:
    """Find this process's cgroup version 1 folders that the user may write to.

    Returns the folder for each available controller, and the reason for each missing controller.
    """
    folders = {}
    missing = {}
    for name in CONTROLLERS:
        folder = _find_folder(root / name, paths.get(name, "/"))
        if not folder.is_dir():
            missing[name] = f"this system has no {name} control group in {root}"
        elif not os.access(folder, os.W_OK):
            missing[name] = "cannot create control groups: cgroup version 1 requires root outside a container"
        else:
            folders[name] = folder
    return folders, missing


def _find_delegated(root: Path, paths: Mapping[str, str]) -> tuple[Mapping[str, Path], Mapping[str, str]]:
    """Find the nearest cgroup version 2 folder that is delegated to this user, starting with this process's group.

    Returns the folder for each available controller, and the reason for each missing controller.
    """
    folder = _find_folder(root, paths.get("", "/"))
    for parent in (folder, *folder.parents):
        if not parent.is_relative_to(root):
            break
        delegated: list[str] = []
        with suppress(OSError):
            delegated = (parent / "cgroup.subtree_control").read_text(encoding="ascii").split()
        if os.access(parent, os.W_OK) and os.access(parent / "cgroup.procs", os.W_OK) and "memory" in delegated:
            missing = {name: f"{parent} does not delegate {name}" for name in CONTROLLERS if name not in delegated}
            return {name: parent for name in CONTROLLERS if name in delegated}, missing
    reason = "no control group is delegated to this user (try: systemd-run --user --scope -p Delegate=yes agent …)"
    return {}, dict.fromkeys(CONTROLLERS, reason)


def _find_folder(root: Path, path: str) -> Path:
    """Return a group's folder, or `root` if the folder does not exist.

    In a container, the kernel may report a path that exists only on the host.
    """
    folder = root / path.lstrip("/")
    return folder if folder.is_dir() else root


def _read_groups(membership: Path) -> dict[str, str]:
    """Return this process's groups, keyed by controller. The key for the cgroup version 2 group is an empty string."""
    paths: dict[str, str] = {}
    with suppress(OSError):
        for line in membership.read_text(encoding="utf-8").splitlines():
            _number, controllers, path = line.split(":", 2)
            paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def _list_settings(controller: str, version: int, limits: SandboxLimits) -> Sequence[tuple[str, str]]:
    quota = int(limits.cpus * _PERIOD)
    if controller == "pids":
        return [("pids.max", str(limits.processes + _EXTRA_PROCESSES))]
    if version == 1 and controller == "memory":
        return [("memory.limit_in_bytes", str(limits.memory)), ("memory.swappiness", "0")]
    if version == 1:
        return [("cpu.cfs_period_us", str(_PERIOD)), ("cpu.cfs_quota_us", str(quota))]
    if controller == "memory":
        return [("memory.max", str(limits.memory)), ("memory.swap.max", "0")]
    return [("cpu.max", f"{quota} {_PERIOD}")]


def _try_remove(folder: Path) -> bool:
    """Remove a group. Returns False if the group still has processes."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _write(file: Path, value: str) -> None:
    """Write a setting. Skips swap settings on kernels that do not support them."""
    if file.name in ("memory.swap.max", "memory.swappiness") and not file.exists():
        return
    file.write_text(value, encoding="ascii")
