"""Who started a container: enough to know, later and from another process, whether its owner is dead."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

PREFIX = "test-driven-annotator"
KIND = f"{PREFIX}.kind"


@dataclass(frozen=True)
class Owner:
    """A process of a host: `host` and `boot` are opaque ids, `started` sets it apart from earlier users of its pid."""

    host: str
    boot: str
    namespace: str
    pid: int
    started: str

    @classmethod
    def current(cls) -> Owner:
        """Describe this process."""
        pid = os.getpid()
        return cls(_host(), _boot(), _namespace(), pid, _started(pid) or "")

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> Owner | None:
        """Read an owner back from labels, or None when they name none."""
        try:
            host, boot, namespace, pid, started = (labels[f"{PREFIX}.{each.name}"] for each in fields(cls))
            return cls(host, boot, namespace, int(pid), started)
        except (KeyError, ValueError):
            return None

    def labels(self) -> dict[str, str]:
        """Return the labels that name this owner."""
        return {f"{PREFIX}.{name}": str(value) for name, value in asdict(self).items()}

    def is_gone(self, here: Owner) -> bool:
        """Whether this owner is surely dead, as seen by `here`; False wherever `here` cannot know."""
        if self.host != here.host:
            return False
        if self.boot != here.boot:
            return True
        return self.namespace == here.namespace and _started(self.pid) != self.started


def _host() -> str:
    """Engines are shared by hosts, and cloned machines share a machine id: take the name in as well."""
    machine = next((_read(path) for path in ("/etc/machine-id", "/var/lib/dbus/machine-id") if _read(path)), "")
    return hashlib.sha256(f"{machine}\0{socket.gethostname()}".encode()).hexdigest()[:16]


def _boot() -> str:
    return _read("/proc/sys/kernel/random/boot_id") or _ask("sysctl", "-n", "kern.bootsessionuuid")


def _namespace() -> str:
    """Pids of another namespace mean other processes: a container of its own is another place on the same host."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return "host"


def _started(pid: int) -> str | None:
    """Return an opaque start time of a live process, or None when there is none."""
    if Path("/proc/self/stat").exists():
        fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return None if not fields or fields[0] in "ZX" else fields[19]
    return _ask("ps", "-o", "lstart=", "-p", str(pid)) or None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _ask(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""
