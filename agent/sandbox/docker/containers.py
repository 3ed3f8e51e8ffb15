"""Launches and removes containers, and finds out why a container died.

Engine calls block, so they run in threads. If a launch is cancelled, its thread removes the container.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from agent.errors import ContainerLost, EngineLost, RunnerCrashed, SandboxError
from agent.sandbox.base import SandboxLimits
from agent.sandbox.docker.attach import AttachedStream
from agent.sandbox.docker.engine import ContainerState, DockerEngine
from agent.sandbox.inside import ENVIRONMENT
from agent.sandbox.mounts import Mount
from agent.sandbox.owner import KIND, PREFIX

T = TypeVar("T")
Prepare = Callable[[str], None]
_Launched = tuple[str, socket.socket]

STORE = "/envs"
WORK = "/work"
LAUNCH_DEADLINE = 120.0
_SUPERVISOR_PROCESSES = 8
_NANO_CPUS = 1_000_000_000
_MAX_INSPECTIONS = 10
_INSPECTION_INTERVAL = 0.1
_KILL_EXIT_CODES = (137, 143)
"""Exit codes after SIGKILL and SIGTERM. Programs in the container cannot send signals to its main process."""


@dataclass(frozen=True)
class ContainerSettings:
    """Settings that all containers of a backend share.

    `store` is the name of the volume that stores environments. `security` lists security options for the engine.
    `mounts` lists host files that are mounted in sandboxes but not in builder containers.
    """

    image: str
    limits: SandboxLimits
    store: str
    labels: Mapping[str, str]
    security: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()


def make_sandbox_config(settings: ContainerSettings, command: Sequence[str]) -> dict[str, Any]:
    """Return the configuration for the container in which a pair's programs run.

    The container has resource limits, a read-only root file system, no network, and no host files except `mounts`.
    Root has only the capabilities that the trusted supervisor needs to switch to another user and to kill that user's
    processes. The environment store is mounted read-only.
    """
    config = _make_config(settings, command, "sandbox")
    config["HostConfig"]["CapAdd"] = ["SETUID", "SETGID", "KILL"]
    config["HostConfig"]["Mounts"] = [
        _make_volume_mount(settings.store, read_only=True),
        *map(_make_bind_mount, settings.mounts),
    ]
    return config


def make_builder_config(settings: ContainerSettings, command: Sequence[str]) -> dict[str, Any]:
    """Return the configuration for a container that can write to the environment store but has no capabilities."""
    config = _make_config(settings, command, "builder")
    config["HostConfig"]["Mounts"] = [_make_volume_mount(settings.store, read_only=False)]
    return config


def _make_config(settings: ContainerSettings, command: Sequence[str], kind: str) -> dict[str, Any]:
    limits = settings.limits
    # Podman rejects options that set the owner. If the folder exists in the image, runc before 1.2 uses its mode.
    inode_option = f",nr_inodes={limits.inodes}" if limits.inodes else ""
    folder = f"rw,exec,nosuid,nodev,size={limits.files}{inode_option},mode=1777"
    return {
        "Image": settings.image,
        "Entrypoint": list(command),
        "Cmd": [],
        "User": "0:0",
        "Env": [f"{name}={value}" for name, value in ENVIRONMENT.items()],
        "Hostname": "sandbox",
        "WorkingDir": "/",
        "NetworkDisabled": True,
        "Tty": False,
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Labels": {**settings.labels, KIND: kind},
        "HostConfig": {
            "NetworkMode": "none",
            "ReadonlyRootfs": True,
            "Tmpfs": {"/tmp": folder, WORK: folder, "/dev/shm": folder},
            "IpcMode": "private",
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges", *settings.security],
            "Init": False,
            "Memory": limits.memory,
            "MemorySwap": limits.memory,
            "NanoCpus": int(limits.cpus * _NANO_CPUS),
            "PidsLimit": limits.processes + _SUPERVISOR_PROCESSES,
            "Ulimits": [
                {"Name": "core", "Soft": 0, "Hard": 0},
                {"Name": "nofile", "Soft": limits.open_files, "Hard": limits.open_files},
            ],
            "LogConfig": {"Type": "none"},
        },
    }


def _make_volume_mount(store: str, *, read_only: bool) -> dict[str, Any]:
    return {
        "Type": "volume",
        "Source": store,
        "Target": STORE,
        "ReadOnly": read_only,
        "VolumeOptions": {"NoCopy": True},
    }


def _make_bind_mount(mount: Mount) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": str(mount.host),
        "Target": mount.target,
        "ReadOnly": True,
        # older engines would leave submounts writable, so submounts are excluded
        "BindOptions": {"Propagation": "private", "NonRecursive": True},
    }


@dataclass(frozen=True)
class Container:
    """A started container and its attached stream."""

    name: str
    stream: AttachedStream


class ContainerLauncher:
    """Launches and removes a backend's containers in a separate thread pool."""

    def __init__(self, engine: DockerEngine, *, threads: int = 16) -> None:
        self._engine = engine
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="agent-docker")
        self._work: set[asyncio.Future[Any]] = set()
        self._running: set[str] = set()
        self._unremoved: dict[str, SandboxError] = {}
        self._closing = False

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a blocking function in the launcher's thread pool."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    async def launch(
        self, config: Mapping[str, Any], prepare: Prepare | None = None, *, deadline: float = LAUNCH_DEADLINE
    ) -> Container:
        """Create, attach to and start a container. Cancelling this call leaves no container behind.

        The launching thread calls `prepare` with the container's name before the container starts.

        Raises:
            SandboxError: the backend is closed, the engine reports an error, or `deadline` seconds have passed.
        """
        if self._closing:
            raise SandboxError("the sandbox backend is closed")
        cancelled = threading.Event()
        launch = self._submit(self._create_and_start, config, prepare, cancelled)
        try:
            async with asyncio.timeout(deadline):
                name, connection = await asyncio.shield(launch)
                return Container(name, await AttachedStream.open(connection))
        except BaseException as error:
            cancelled.set()
            launch.add_done_callback(self._discard_launched)
            if isinstance(error, TimeoutError):
                raise SandboxError(f"the Docker engine did not start a container within {deadline:g} s") from None
            raise

    def discard(self, name: str) -> None:
        """Schedule the forced removal of a container. Does nothing after `close`, which removes all containers."""
        if name in self._running:
            self._running.discard(name)
            self._submit(self._remove, name)

    async def close(self) -> Mapping[str, SandboxError]:
        """Remove all containers and wait for completion. Return the errors of failed removals, keyed by container."""
        self._closing = True
        await self._finish_work()
        # some cancelled tasks have not discarded their containers yet, and some removals may have failed
        rest = {*self._running, *self._unremoved}
        self._running.clear()
        self._unremoved.clear()
        for name in rest:
            self._submit(self._remove, name)
        await self._finish_work()
        await asyncio.to_thread(self._threads.shutdown)
        return self._unremoved

    def _submit(self, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        future = asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)
        self._work.add(future)
        future.add_done_callback(self._work.discard)
        return future

    async def _finish_work(self) -> None:
        while self._work:
            await asyncio.wait(self._work)

    def _create_and_start(
        self, config: Mapping[str, Any], prepare: Prepare | None, cancelled: threading.Event
    ) -> _Launched:
        """Create, attach to and start a container. Blocks. Removes the container on failure or cancellation."""

        def check_cancelled() -> None:
            if cancelled.is_set() or self._closing:
                raise SandboxError(f"the start of container {name} was cancelled")

        name, connection = f"{PREFIX}-{secrets.token_hex(6)}", None
        try:
            check_cancelled()
            self._engine.create(config, name)
            if prepare is not None:
                prepare(name)
            connection = self._engine.attach(name)
            check_cancelled()
            self._engine.start(name)
            check_cancelled()
        except BaseException as error:
            if connection is not None:
                connection.close()
            self._remove(name)
            if isinstance(error, EngineLost):  # the engine may still create the container
                self._unremoved[name] = error
            raise
        self._running.add(name)
        return name, connection

    def _discard_launched(self, launch: asyncio.Future[_Launched]) -> None:
        """Remove the container of an abandoned launch."""
        if not launch.cancelled() and launch.exception() is None:
            name, connection = launch.result()
            connection.close()
            self.discard(name)

    def _remove(self, name: str) -> None:
        try:
            self._engine.remove(name)
        except SandboxError as error:
            self._unremoved[name] = error


async def diagnose_container(
    inspect: Callable[[], Awaitable[ContainerState | None]], name: str, stderr: str
) -> SandboxError:
    """Build the error for a container that died. The message quotes the end of `stderr`.

    `inspect` fetches the container's state from the engine.
    """
    try:
        state = await inspect()
        for _ in range(_MAX_INSPECTIONS):
            # the stream ends shortly before the engine updates the state
            if state is None or not state.running:
                break
            await asyncio.sleep(_INSPECTION_INTERVAL)
            state = await inspect()
    except SandboxError as error:
        return error if isinstance(error, EngineLost) else ContainerLost(f"container {name} failed: {error}")
    details = f"; last lines of its stderr: {stderr[-1000:]}" if stderr else ""
    if state is None:
        return ContainerLost(f"container {name} was removed by another process{details}")
    if state.running:
        return ContainerLost(f"container {name} is running, but the connection to it was lost{details}")
    if state.oom_killed:
        return ContainerLost(f"container {name} exceeded its memory limit{details}")
    if state.exit_code in _KILL_EXIT_CODES:
        return ContainerLost(
            f"container {name} was killed by a process outside it (exit code {state.exit_code}){details}"
        )
    if state.exit_code == 0:  # the supervisor exits with code 0 only when its stdin is closed
        return ContainerLost(f"container {name} exited because the connection to it was lost{details}")
    return RunnerCrashed(f"the main process of container {name} exited with code {state.exit_code}{details}")
