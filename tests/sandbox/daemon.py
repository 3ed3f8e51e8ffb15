"""The Docker daemon of this machine, and how it is restarted as it was started."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.errors import DockerException
from requests import RequestException

STOPS_WITHIN = 60.0
ANSWERS_WITHIN = 60.0
PID_FILES = Path("/var/run/docker.pid"), Path("/var/run/docker/containerd/containerd.pid")


@dataclass(frozen=True)
class Daemon:
    """A running dockerd: what is needed to start it again as it was."""

    pid: int
    command: tuple[str, ...]
    environment: dict[str, str]
    folder: str
    log: str

    @classmethod
    def find(cls) -> Daemon:
        """Find the one that listens on the Unix socket that Docker's settings name.

        Raises:
            LookupError: something else does.
        """
        host = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(host.removeprefix("unix://"))
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        place = Path("/proc", str(struct.unpack("3i", credentials)[0]))
        if _name(place) != "dockerd":
            raise LookupError(f"{host} is served by {_name(place)}, not by dockerd")
        variables = (item.partition("=") for item in _words(place / "environ"))
        log = str((place / "fd/1").readlink())
        return cls(
            int(place.name),
            _words(place / "cmdline"),
            {name: value for name, _, value in variables},
            str((place / "cwd").readlink()),
            log if Path(log).is_file() else os.devnull,
        )

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it by a signal, and wait until it is gone.

        Raises:
            TimeoutError: it does not end.
        """
        os.kill(self.pid, how)
        deadline = time.monotonic() + STOPS_WITHIN
        while _name(Path("/proc", str(self.pid))) == "dockerd":
            if time.monotonic() > deadline:
                raise TimeoutError(f"dockerd goes on {STOPS_WITHIN:g} s after {how.name}")
            time.sleep(0.1)
        for file in PID_FILES:  # one of a zombie keeps the next from starting
            file.unlink(missing_ok=True)

    def start(self) -> None:
        """Start it again, detached from this process."""
        with Path(self.log).open("ab") as log:
            subprocess.run(
                ["setsid", "--fork", *self.command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment, cwd=self.folder, check=True,
            )  # fmt: skip


def restart(how: signal.Signals = signal.SIGTERM) -> None:
    """Restart the daemon, by systemd where that started it, and otherwise ended by a signal.

    Returns when it answers again. Blocks.

    Raises:
        LookupError, TimeoutError: it cannot be found, does not end, or does not come back.
    """
    active = ["systemctl", "is-active", "--quiet", "docker"]
    if Path("/run/systemd/system").is_dir() and subprocess.run(active, check=False).returncode == 0:
        subprocess.run(["systemctl", "restart", "docker"], check=True)
    else:
        daemon = Daemon.find()
        try:
            daemon.stop(how)
        finally:
            daemon.start()
    deadline = time.monotonic() + ANSWERS_WITHIN
    while not answers():
        if time.monotonic() > deadline:
            raise TimeoutError(f"dockerd does not answer {ANSWERS_WITHIN:g} s after its start")
        time.sleep(0.2)


def answers() -> bool:
    """Say whether the daemon is there."""
    try:
        client = docker.from_env(timeout=5)
        client.ping()
        client.close()
    except (DockerException, RequestException):
        return False
    return True


def _name(process: Path) -> str:
    try:
        state = (process / "stat").read_text(encoding="utf-8")
    except OSError:
        return ""
    ended = state.rpartition(")")[2].split()[0] in "ZX"
    return "" if ended else state[state.index("(") + 1 : state.rindex(")")]


def _words(path: Path) -> tuple[str, ...]:
    return tuple(os.fsdecode(word) for word in path.read_bytes().split(b"\0")[:-1])
