"""Identifies the process that started a container. Other processes can check whether that process is still alive."""

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
    """A process that owns containers.

    `host` identifies the host and the PID namespace. `started` is an opaque start time. It is needed because PIDs are
    reused.
    """

    host: str
    pid: int
    started: str

    @classmethod
    def current(cls) -> Owner:
        """Return the owner for this process."""
        pid = os.getpid()
        return cls(_identify_host(), pid, _read_start_time(pid) or "")

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> Owner | None:
        """Parse an owner from labels, or return None if the labels are incomplete or malformed."""
        try:
            return cls(labels[f"{PREFIX}.host"], int(labels[f"{PREFIX}.pid"]), labels[f"{PREFIX}.started"])
        except (KeyError, ValueError):
            return None

    def as_labels(self) -> dict[str, str]:
        """Return the labels that identify this owner."""
        return {f"{PREFIX}.{name}": str(value) for name, value in asdict(self).items()}

    def is_gone(self, this_process: Owner) -> bool:
        """Return whether this owner is known to have exited. Always False if `this_process` is on another host."""
        return self.host == this_process.host and _read_start_time(self.pid) != self.started


def _identify_host() -> str:
    """Return an id for this host and PID namespace. Within this namespace, PIDs are unique.

    A machine id alone is not enough. Hosts can share an engine, cloned machines share a machine id, and containers have
    their own PIDs.
    """
    machine = _read_text("/etc/machine-id") or _read_text("/var/lib/dbus/machine-id")
    namespace = ""
    with suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink())
    return hashlib.sha256(f"{machine}\0{socket.gethostname()}\0{namespace}".encode()).hexdigest()[:16]


def _read_start_time(pid: int) -> str | None:
    """Return an opaque start time of a process, or None if the process has exited."""
    if Path("/proc/self/stat").exists():
        fields = _read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return None if not fields or fields[0] in "ZX" else fields[19]
    ps = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return ps.stdout.strip() or None


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
