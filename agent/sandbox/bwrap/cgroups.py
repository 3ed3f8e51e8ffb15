"""Control groups for sandboxes that no engine puts into one: limits for all processes of a sandbox together.

Version 1 lets root alone make groups, unless an administrator gave a folder away. Version 2 lets a user make them below
a group that was delegated, as systemd does for each session. Where neither is so, nothing is limited and `missing` says
why. A group's name begins with the pid of its maker, so that the next start removes what a killed process left.
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
_OWN_PROCESSES = 8
_PERIOD = 100_000
_REMOVAL_SECONDS = 2.0


@dataclass(frozen=True)
class Cgroup:
    """One sandbox's group: its folder in each hierarchy."""

    folders: Sequence[Path]
    counter: Path | None

    def kills(self) -> int:
        """Return how often the kernel has killed in this group for lack of memory."""
        if self.counter is None:
            return 0
        with suppress(OSError):
            for line in self.counter.read_text(encoding="ascii").splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0

    def remove(self) -> None:
        """Remove the group as soon as its processes have ended. Blocks. The next start removes what is left."""
        deadline = time.monotonic() + _REMOVAL_SECONDS
        while not all(map(_try_remove, self.folders)) and time.monotonic() < deadline:
            time.sleep(0.005)


@dataclass(frozen=True)
class ControlGroups:
    """Makes a group for each sandbox. Methods block; they may be called from several threads.

    `folders` holds, by controller, the folder in which groups are made: one for all controllers in version 2. `missing`
    says what is not limited, and why.
    """

    folders: Mapping[str, Path]
    missing: Mapping[str, str]
    version: int = 2

    @classmethod
    def find(cls, root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> ControlGroups:
        """Find where this process may make groups; remove the empty groups of dead processes there."""
        version = 2 if (root / "cgroup.controllers").is_file() else 1
        uppers, missing = (_delegated if version == 2 else _writable)(root, _places(own))
        folders = {name: upper / PREFIX for name, upper in uppers.items()}
        try:
            for folder in set(folders.values()):
                folder.mkdir(exist_ok=True)
                if version == 2:
                    _write(folder / "cgroup.subtree_control", " ".join(f"+{name}" for name in folders))
                for left in folder.iterdir():
                    if left.is_dir() and not Path("/proc", left.name.partition("-")[0]).exists():
                        _try_remove(left)
        except OSError as error:
            return cls({}, dict.fromkeys(CONTROLLERS, f"no control group can be made: {error}"))
        return cls(folders, missing, version)

    def enter(self, pid: int, limits: SandboxLimits) -> Cgroup | None:
        """Put a process, and so all that it will start, into a group of its own; None where there are no groups.

        Raises:
            SandboxError: the kernel refuses.
        """
        if not self.folders:
            return None
        name = f"{os.getpid()}-{secrets.token_hex(4)}"
        memory = self.folders.get("memory")
        events = "memory.events" if self.version == 2 else "memory.oom_control"
        places = {folder / name for folder in self.folders.values()}
        group = Cgroup(sorted(places), None if memory is None else memory / name / events)
        try:
            for place in group.folders:
                place.mkdir()
            for controller, folder in self.folders.items():
                for setting, value in _settings(controller, self.version, limits):
                    _write(folder / name / setting, value)
            for place in group.folders:
                _write(place / "cgroup.procs", str(pid))
        except OSError as error:
            group.remove()
            raise SandboxError(f"a sandbox could not be put into its control group: {error}") from error
        return group


def _writable(root: Path, places: Mapping[str, str]) -> tuple[Mapping[str, Path], Mapping[str, str]]:
    """Return the group of this process for each controller of version 1 that this user may write to."""
    folders = {}
    missing = {}
    for name in CONTROLLERS:
        folder = _existing_folder(root / name, places.get(name, "/"))
        if not folder.is_dir():
            missing[name] = f"this system has no control group for it in {root}"
        elif not os.access(folder, os.W_OK):
            missing[name] = (
                "no control group can be made: their version 1 lets root alone do so, and not in a container"
            )
        else:
            folders[name] = folder
    return folders, missing


def _delegated(root: Path, places: Mapping[str, str]) -> tuple[Mapping[str, Path], Mapping[str, str]]:
    """Return the nearest group of version 2 upwards that this user may write to and that passes its controllers on."""
    folder = _existing_folder(root, places.get("", "/"))
    for upper in (folder, *folder.parents):
        if not upper.is_relative_to(root):
            break
        passed: list[str] = []
        with suppress(OSError):
            passed = (upper / "cgroup.subtree_control").read_text(encoding="ascii").split()
        if os.access(upper, os.W_OK) and os.access(upper / "cgroup.procs", os.W_OK) and "memory" in passed:
            missing = {name: f"{upper} does not pass it on" for name in CONTROLLERS if name not in passed}
            return {name: upper for name in CONTROLLERS if name in passed}, missing
    why = "no control group was delegated to this user: systemd-run --user --scope -p Delegate=yes agent … gives one"
    return {}, dict.fromkeys(CONTROLLERS, why)


def _existing_folder(root: Path, place: str) -> Path:
    """Return a group's folder; inside a container the kernel may name one that is only there on its host."""
    folder = root / place.lstrip("/")
    return folder if folder.is_dir() else root


def _places(own: Path) -> dict[str, str]:
    """Return the group that this process is in, by controller; under the empty name for version 2."""
    places: dict[str, str] = {}
    with suppress(OSError):
        for line in own.read_text(encoding="utf-8").splitlines():
            _number, controllers, place = line.split(":", 2)
            places.update(dict.fromkeys(controllers.split(","), place))
    return places


def _settings(controller: str, version: int, limits: SandboxLimits) -> Sequence[tuple[str, str]]:
    quota = int(limits.cpus * _PERIOD)
    if controller == "pids":
        return [("pids.max", str(limits.processes + _OWN_PROCESSES))]
    if version == 1 and controller == "memory":
        return [("memory.limit_in_bytes", str(limits.memory)), ("memory.swappiness", "0")]
    if version == 1:
        return [("cpu.cfs_period_us", str(_PERIOD)), ("cpu.cfs_quota_us", str(quota))]
    if controller == "memory":
        return [("memory.max", str(limits.memory)), ("memory.swap.max", "0")]
    return [("cpu.max", f"{quota} {_PERIOD}")]


def _try_remove(folder: Path) -> bool:
    """Remove a group; False while the kernel has processes in it."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _write(file: Path, value: str) -> None:
    """Write a setting; swap cannot be limited where the kernel was built without."""
    if file.name in ("memory.swap.max", "memory.swappiness") and not file.exists():
        return
    file.write_text(value, encoding="ascii")
