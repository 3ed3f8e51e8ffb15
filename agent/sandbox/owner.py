"""Who started a container: enough to know, later and from another process, whether its owner is dead."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

PREFIX = "test-driven-annotator"
KIND = f"{PREFIX}.kind"


@dataclass(frozen=True)
class Owner:
    """A process: `host` is an opaque id of host and pid namespace, `started` sets it apart from others with its pid."""

    host: str
    pid: int
    started: str

    @classmethod
    def current(cls) -> Owner:
        """Describe this process."""
        pid = os.getpid()
        return cls(_host(), pid, _started(pid) or "")

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> Owner | None:
        """Read an owner back from labels, or None when they name none."""
        try:
            return cls(labels[f"{PREFIX}.host"], int(labels[f"{PREFIX}.pid"]), labels[f"{PREFIX}.started"])
        except (KeyError, ValueError):
            return None

    def as_labels(self) -> dict[str, str]:
        """Return the labels that name this owner."""
        return {f"{PREFIX}.{name}": str(value) for name, value in asdict(self).items()}

    def is_gone(self, here: Owner) -> bool:
        """Whether this owner is surely dead, as seen by `here`; False wherever `here` cannot know."""
        return self.host == here.host and _started(self.pid) != self.started


def _host() -> str:
    """Identify the place where a pid means one process.

    Engines are shared by hosts, cloned machines share a machine id, and each pid namespace has pids of its own.
    """
    machine = _read("/etc/machine-id") or _read("/var/lib/dbus/machine-id")
    namespace = ""
    with suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink())
    return hashlib.sha256(f"{machine}\0{socket.gethostname()}\0{namespace}".encode()).hexdigest()[:16]


def _started(pid: int) -> str | None:
    """Return an opaque start time of a live process, or None when there is none."""
    if Path("/proc/self/stat").exists():
        fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return None if not fields or fields[0] in "ZX" else fields[19]
    listed = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return listed.stdout.strip() or None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
