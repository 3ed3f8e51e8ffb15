"""Control groups for sandboxes that no engine puts into one: limits for all processes of a sandbox together.

Version 1 lets root alone make groups, unless an administrator gave a folder away. Version 2 lets a user make them below
a group that was delegated, as systemd does for each session. Where neither is so, nothing is limited and `missing` says
why. A group's name holds its owner, so that the next start removes what a dead process left.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from agent.errors import SandboxError
from agent.sandbox.base import SandboxLimits
from agent.sandbox.owner import PREFIX, Owner

CONTROLLERS = ("memory", "pids", "cpu")
_OWN_PROCESSES = 8
_PERIOD = 100_000
_REMOVAL_SECONDS = 2.0
_OWNED = re.compile(r"(\d{1,20})-(\d{1,9})-(\d{1,20})-[0-9a-f]{8}", re.ASCII)


@dataclass(frozen=True)
class Hierarchy:
    """Where this process may make groups: one folder for each controller in version 1, one for all in version 2."""

    version: int
    folders: Mapping[str, Path]


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

    def remove(self) -> bool:
        """Remove the group, whose processes have ended or are about to; False while some are still in it. Blocks."""
        deadline = time.monotonic() + _REMOVAL_SECONDS
        while [folder for folder in self.folders if not _removed(folder)]:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True


@dataclass
class ControlGroups:
    """Makes a group for each sandbox, below a group of its own. `missing` says what is not limited, and why.

    Methods block; they may be called from several threads.
    """

    hierarchy: Hierarchy | None
    missing: Mapping[str, str]
    owner: Owner = field(default_factory=Owner.current)
    _mark: str = field(default_factory=partial(secrets.token_hex, 4), repr=False)

    @classmethod
    def find(cls, root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> ControlGroups:
        """Find where this process may make groups, and make one there; removes what dead processes left."""
        hierarchy, missing = _found(root, _places(own))
        groups = cls(hierarchy, missing)
        try:
            for folder in groups._own():
                _sweep(folder.parent, groups.owner)
                folder.mkdir(parents=True, exist_ok=True)
                if hierarchy is not None and hierarchy.version > 1:
                    for upper in (folder.parent, folder):
                        _write(upper / "cgroup.subtree_control", " ".join(f"+{name}" for name in hierarchy.folders))
        except OSError as error:
            groups.close()
            return cls(None, dict.fromkeys(CONTROLLERS, f"no control group can be made: {error}"))
        return groups

    def enter(self, pid: int, limits: SandboxLimits) -> Cgroup | None:
        """Put a process, and so all that it will start, into a group of its own; None where there are no groups.

        Raises:
            SandboxError: the kernel refuses.
        """
        if self.hierarchy is None:
            return None
        name = secrets.token_hex(4)
        folders = [folder / name for folder in self._own()]
        counter = self.hierarchy.folders.get("memory")
        file = "memory.oom_control" if self.hierarchy.version == 1 else "memory.events"
        group = Cgroup(folders, None if counter is None else self._below(counter) / name / file)
        try:
            for folder in folders:
                folder.mkdir()
            for controller, upper in self.hierarchy.folders.items():
                for setting, value in _settings(controller, self.hierarchy.version, limits):
                    _write(self._below(upper) / name / setting, value)
            for folder in folders:
                _write(folder / "cgroup.procs", str(pid))
        except OSError as error:
            group.remove()
            raise SandboxError(f"a sandbox could not be put into its control group: {error}") from error
        return group

    def close(self) -> None:
        """Remove the group that was made for all others, and those that could not be removed before."""
        for folder in self._own():
            _emptied(folder)

    def _own(self) -> list[Path]:
        upper = () if self.hierarchy is None else self.hierarchy.folders.values()
        return list(dict.fromkeys(map(self._below, upper)))

    def _below(self, folder: Path) -> Path:
        owner = self.owner
        namespace = "".join(filter(str.isdecimal, owner.namespace))
        return folder / PREFIX / f"{namespace}-{owner.pid}-{owner.started}-{self._mark}"


def _found(root: Path, places: Mapping[str, str]) -> tuple[Hierarchy | None, Mapping[str, str]]:
    if (root / "cgroup.controllers").is_file():
        return _unified(root, places.get("", "/"))
    folders = {}
    missing = {}
    for name in CONTROLLERS:
        folder = _existing(root / name, places.get(name, "/"))
        if not folder.is_dir():
            missing[name] = f"this system has no control group for it in {root}"
        elif not os.access(folder, os.W_OK):
            missing[name] = (
                "no control group can be made: their version 1 lets root alone do so, and not in a container"
            )
        else:
            folders[name] = folder
    return (Hierarchy(1, folders) if folders else None), missing


def _unified(root: Path, place: str) -> tuple[Hierarchy | None, Mapping[str, str]]:
    """Take the nearest group upwards that this user may write to and that passes its controllers on."""
    folder = _existing(root, place)
    for upper in (folder, *folder.parents):
        if not upper.is_relative_to(root):
            break
        passed = _words(upper / "cgroup.subtree_control")
        if os.access(upper, os.W_OK) and os.access(upper / "cgroup.procs", os.W_OK) and "memory" in passed:
            have = [name for name in CONTROLLERS if name in passed]
            missing = {name: f"{upper} does not pass it on" for name in CONTROLLERS if name not in have}
            return Hierarchy(2, dict.fromkeys(have, upper)), missing
    why = "no control group was delegated to this user: systemd-run --user --scope -p Delegate=yes agent … gives one"
    return None, dict.fromkeys(CONTROLLERS, why)


def _existing(root: Path, place: str) -> Path:
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


def _settings(controller: str, version: int, limits: SandboxLimits) -> Iterator[tuple[str, str]]:
    quota = int(limits.cpus * _PERIOD)
    processes = limits.processes + _OWN_PROCESSES
    if controller == "pids":
        yield "pids.max", str(processes)
    elif version == 1 and controller == "memory":
        yield "memory.limit_in_bytes", str(limits.memory)
        yield "memory.swappiness", "0"
    elif version == 1:
        yield "cpu.cfs_period_us", str(_PERIOD)
        yield "cpu.cfs_quota_us", str(quota)
    elif controller == "memory":
        yield "memory.max", str(limits.memory)
        yield "memory.swap.max", "0"
    else:
        yield "cpu.max", f"{quota} {_PERIOD}"


def _sweep(folder: Path, here: Owner) -> None:
    """Remove the groups of processes that are dead; those of other namespaces cannot be judged from here."""
    for left in folder.iterdir() if folder.is_dir() else ():
        if (name := _OWNED.fullmatch(left.name)) is not None:
            namespace, pid, started = name.groups()
            if Owner(here.host, here.boot, f"pid:[{namespace}]", int(pid), started).is_gone(here):
                _emptied(left)


def _emptied(folder: Path) -> None:
    with suppress(FileNotFoundError):
        for group in folder.iterdir():
            if group.is_dir():
                _removed(group)
        _removed(folder)


def _removed(folder: Path) -> bool:
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


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii").split()
    except OSError:
        return []
