"""The life of containers: what they are given, and how none is left behind.

Engine calls block, so they run in threads. A launch cancelled half-way is finished and undone by its own thread:
nothing depends on the event loop still being there.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from agent.errors import EngineLost, SandboxError
from agent.sandbox.base import Limits
from agent.sandbox.inside import ENVIRONMENT
from agent.sandbox.mounts import Mount, bound
from agent.sandbox.owner import KIND, PREFIX

T = TypeVar("T")
Prepare = Callable[[str], None]

STORE = "/envs"
WORK = "/work"
LAUNCH_DEADLINE = 120.0
_OWN_PROCESSES = 8
_PERIOD = 1_000_000_000


@dataclass(frozen=True)
class ContainerState:
    """How the engine says a container is: `exit_code` counts only when it is not running."""

    running: bool
    exit_code: int
    oom_killed: bool


class ContainerEngine(Protocol):
    """The blocking calls of an engine that a container's life needs; each raises `SandboxError`."""

    def create(self, config: Mapping[str, Any], name: str) -> None:
        """Create a container."""
        ...

    def attach(self, name: str) -> socket.socket:
        """Connect to a created container's standard streams, before it starts."""
        ...

    def start(self, name: str) -> None:
        """Start a created container."""
        ...

    def remove(self, name: str) -> None:
        """Kill and remove a container; one that is gone already is fine."""
        ...


@dataclass(frozen=True)
class Setting:
    """What all containers of a backend have in common.

    `store` is the name of the volume with environments, `security` what the engine is asked to confine them with;
    `mounts` are what sandboxes, not builders, are shown of the host.
    """

    image: str
    limits: Limits
    store: str
    labels: Mapping[str, str]
    security: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()


def sandbox_config(setting: Setting, command: Sequence[str]) -> dict[str, Any]:
    """Return the engine's settings for a pair's container: no network, read-only, limited, only `mounts` of the host.

    Root inside keeps only what its trusted first process needs: to become another user and to end that user's
    processes. The environment store is mounted read-only.
    """
    config = _config(setting, command, "sandbox")
    config["HostConfig"]["CapAdd"] = ["SETUID", "SETGID", "KILL"]
    config["HostConfig"]["Mounts"] = [_mount(setting.store, read_only=True), *map(bound, setting.mounts)]
    return config


def builder_config(setting: Setting, command: Sequence[str]) -> dict[str, Any]:
    """Return the settings for a container that may write to the environment store, and has no capability at all."""
    config = _config(setting, command, "builder")
    config["HostConfig"]["Mounts"] = [_mount(setting.store, read_only=False)]
    return config


def _config(setting: Setting, command: Sequence[str], kind: str) -> dict[str, Any]:
    limits = setting.limits
    # No owner: Podman refuses one. Where an image has the folder, runc before 1.2 gives it that one's mode.
    number = f",nr_inodes={limits.inodes}" if limits.inodes else ""
    folder = f"rw,exec,nosuid,nodev,size={limits.files}{number},mode=1777"
    return {
        "Image": setting.image,
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
        "Labels": {**setting.labels, KIND: kind},
        "HostConfig": {
            "NetworkMode": "none",
            "ReadonlyRootfs": True,
            "Tmpfs": {"/tmp": folder, WORK: folder, "/dev/shm": folder},
            "IpcMode": "private",
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges", *setting.security],
            "Init": False,
            "Memory": limits.memory,
            "MemorySwap": limits.memory,
            "NanoCpus": int(limits.cpus * _PERIOD),
            "PidsLimit": limits.processes + _OWN_PROCESSES,
            "Ulimits": [
                {"Name": "core", "Soft": 0, "Hard": 0},
                {"Name": "nofile", "Soft": limits.open_files, "Hard": limits.open_files},
            ],
            "LogConfig": {"Type": "none"},
        },
    }


def _mount(store: str, *, read_only: bool) -> dict[str, Any]:
    options = {"NoCopy": True}
    return {"Type": "volume", "Source": store, "Target": STORE, "ReadOnly": read_only, "VolumeOptions": options}


def fresh_name() -> str:
    """Return a name that no container has."""
    return f"{PREFIX}-{secrets.token_hex(6)}"


@dataclass(frozen=True)
class Launched:
    """A container that was started; `connection` is its attached stream."""

    name: str
    connection: socket.socket


class _Launch:
    """Create, attach, start: in one thread, undone there when it fails or was given up meanwhile."""

    def __init__(
        self,
        engine: ContainerEngine,
        config: Mapping[str, Any],
        prepare: Prepare | None,
        left: Callable[[str, SandboxError], None],
    ) -> None:
        self.name = fresh_name()
        self._engine = engine
        self._left = left
        self._config = config
        self._prepare = prepare
        self._lock = threading.Lock()
        self._given_up = False
        self._done: Launched | None = None

    def __call__(self) -> Launched:
        connection: socket.socket | None = None
        try:
            self._go_on()
            self._engine.create(self._config, self.name)
            if self._prepare is not None:
                self._prepare(self.name)
            connection = self._engine.attach(self.name)
            self._go_on()
            self._engine.start(self.name)
            with self._lock:
                self._go_on()
                self._done = Launched(self.name, connection)
                return self._done
        except BaseException as error:
            if connection is not None:
                connection.close()
            self._undo(error)
            raise

    def _go_on(self) -> None:
        if self._given_up:
            raise SandboxError(f"the start of container {self.name} was given up")

    def _undo(self, reason: BaseException) -> None:
        try:
            self._engine.remove(self.name)
            if isinstance(reason, EngineLost):  # the engine may be creating it still
                self._left(self.name, reason)
        except SandboxError as error:
            self._left(self.name, error)

    def give_up(self) -> Launched | None:
        """Have the thread undo the launch; return the container when it is too late for that."""
        with self._lock:
            self._given_up = True
            return self._done


class ContainerCrew:
    """Launches and removes the containers of one backend in threads of its own."""

    def __init__(self, engine: ContainerEngine, *, threads: int = 16) -> None:
        self._engine = engine
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="agent-docker")
        self._launches: set[_Launch] = set()
        self._running: set[str] = set()
        self._removals: set[Future[None]] = set()
        self._left: dict[str, BaseException] = {}
        self._closing = self._ended = False

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a blocking engine call in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    async def launch(
        self, config: Mapping[str, Any], prepare: Prepare | None = None, *, deadline: float = LAUNCH_DEADLINE
    ) -> Launched:
        """Create, attach to and start a container; cancelling this leaves none.

        `prepare` is called with the created container's name, in the launching thread, before anything runs in it.

        Raises:
            SandboxError: the engine refused, broke, or took more than `deadline` seconds.
        """
        if self._closing:
            raise SandboxError("the sandbox backend is closed")
        launch = _Launch(self._engine, config, prepare, self._left.__setitem__)
        self._launches.add(launch)
        try:
            work = asyncio.wrap_future(self._pool.submit(launch))
            # once nobody waits for it any more, asyncio would complain of a failure that nobody looked at
            work.add_done_callback(lambda done: done.cancelled() or done.exception())
            async with asyncio.timeout(deadline):
                launched = await asyncio.shield(work)
            if self._closing:
                raise SandboxError("the sandbox backend was closed while a container started")
            self._running.add(launched.name)
            self._try_again()
            return launched
        except TimeoutError:
            self._abandon(launch)
            raise SandboxError(f"the Docker engine did not start a container within {deadline:g} s") from None
        except asyncio.CancelledError:
            self._abandon(launch)
            raise
        finally:
            self._launches.discard(launch)

    def discard(self, name: str) -> None:
        """Have a container removed by force, without waiting for it; after `close` it is gone already."""
        if self._ended:
            return
        self._running.discard(name)
        removal = self._pool.submit(self._engine.remove, name)
        self._removals.add(removal)
        removal.add_done_callback(lambda done: self._removed(name, done))

    async def close(self) -> Mapping[str, BaseException]:
        """Wait until every container is gone; return those that could not be removed, with the reasons."""
        self._closing = True
        for launch in self._launches:
            self._abandon(launch)
        for name in tuple(self._running):  # of builders, whose work is still being cancelled
            self.discard(name)
        await self._removed_all()
        self._try_again()
        await self._removed_all()
        self._ended = True
        await asyncio.to_thread(self._pool.shutdown)
        return self._left

    async def _removed_all(self) -> None:
        while self._removals:
            await asyncio.gather(*map(asyncio.wrap_future, list(self._removals)), return_exceptions=True)

    def _try_again(self) -> None:
        """Remove what could not be removed before: the engine may have been away."""
        for name in list(self._left):
            del self._left[name]
            self.discard(name)

    def _abandon(self, launch: _Launch) -> None:
        launched = launch.give_up()
        if launched is not None:
            launched.connection.close()
            self.discard(launched.name)

    def _removed(self, name: str, removal: Future[None]) -> None:
        self._removals.discard(removal)
        error = removal.exception()
        if error is not None:
            self._left[name] = error
