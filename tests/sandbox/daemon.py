"""Restarts this machine's Docker daemon with its original command."""

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

STOP_SECONDS = 60.0
RESPONSE_SECONDS = 60.0
PID_FILES = Path("/var/run/docker.pid"), Path("/var/run/docker/containerd/containerd.pid")


@dataclass(frozen=True)
class Daemon:
    """A running dockerd, with everything needed to restart it."""

    pid: int
    command: tuple[str, ...]
    environment: dict[str, str]
    folder: str
    log: str

    @classmethod
    def find(cls) -> Daemon:
        """Find the dockerd that listens on Docker's configured Unix socket.

        Raises:
            LookupError: another program listens.
        """
        host = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(host.removeprefix("unix://"))
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        process = Path("/proc", str(struct.unpack("3i", credentials)[0]))
        if _read_name(process) != "dockerd":
            raise LookupError(f"{host} is served by {_read_name(process)}, not by dockerd")
        variables = (item.partition("=") for item in _read_words(process / "environ"))
        log = str((process / "fd/1").readlink())
        return cls(
            int(process.name),
            _read_words(process / "cmdline"),
            {name: value for name, _, value in variables},
            str((process / "cwd").readlink()),
            log if Path(log).is_file() else os.devnull,
        )

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal and wait until the daemon exits.

        Raises:
            TimeoutError: the daemon does not exit.
        """
        os.kill(self.pid, number)
        deadline = time.monotonic() + STOP_SECONDS
        while _read_name(Path("/proc", str(self.pid))) == "dockerd":
            if time.monotonic() > deadline:
                raise TimeoutError(f"dockerd is still running {STOP_SECONDS:g} s after {number.name}")
            time.sleep(0.1)
        for file in PID_FILES:  # the file of a zombie would prevent the restart
            file.unlink(missing_ok=True)

    def start(self) -> None:
        """Start the daemon, detached from this process."""
        with Path(self.log).open("ab") as log:
            subprocess.run(
                ["setsid", "--fork", *self.command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment, cwd=self.folder, check=True,
            )  # fmt: skip


def restart(number: signal.Signals = signal.SIGTERM) -> None:
    """Restart the daemon with systemd if possible, else with a signal. Blocks until the daemon responds.

    Raises:
        LookupError, TimeoutError: the daemon cannot be found, does not exit or does not respond.
    """
    active = ["systemctl", "is-active", "--quiet", "docker"]
    if Path("/run/systemd/system").is_dir() and subprocess.run(active, check=False).returncode == 0:
        subprocess.run(["systemctl", "restart", "docker"], check=True)
    else:
        daemon = Daemon.find()
        try:
            daemon.stop(number)
        finally:
            daemon.start()
    deadline = time.monotonic() + RESPONSE_SECONDS
    while not is_responding():
        if time.monotonic() > deadline:
            raise TimeoutError(f"dockerd does not respond {RESPONSE_SECONDS:g} s after its start")
        time.sleep(0.2)


def is_responding() -> bool:
    """Return whether the daemon responds."""
    try:
        client = docker.from_env(timeout=5)
        client.ping()
        client.close()
    except (DockerException, RequestException):
        return False
    return True


def _read_name(process: Path) -> str:
    try:
        state = (process / "stat").read_text(encoding="utf-8")
    except OSError:
        return ""
    ended = state.rpartition(")")[2].split()[0] in "ZX"
    return "" if ended else state[state.index("(") + 1 : state.rindex(")")]


def _read_words(path: Path) -> tuple[str, ...]:
    return tuple(os.fsdecode(word) for word in path.read_bytes().split(b"\0")[:-1])
