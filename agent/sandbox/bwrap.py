"""The bubblewrap backend: fresh namespaces for each pair, no daemon, Linux only."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent.errors import SandboxError, SandboxUnavailable
from agent.sandbox.base import CommandResult, EnvironmentBuilder, Job, Limits, Progress, RunResult, Sandbox
from agent.sandbox.bwrap_environments import BwrapInstaller, store_root
from agent.sandbox.channel import Channel
from agent.sandbox.environments import WheelEnvironments
from agent.sandbox.inside import ENVIRONMENT, supervisor_argv
from agent.sandbox.interpreter import Interpreter, find_interpreter

UNPRIVILEGED = 65534
"""The uid and gid that bubblewrap is started as when this process is root: nobody's."""

_START_SECONDS = 20.0
_INSTALL = "install bubblewrap: apt, dnf, pacman, apk or zypper install bubblewrap"
_APPARMOR = (
    "Ubuntu 24.04 and later forbid it by AppArmor: as root, write a profile that allows userns for /usr/bin/bwrap into "
    "/etc/apparmor.d/bwrap, or set sysctl kernel.apparmor_restrict_unprivileged_userns=0"
)
_USERNS = "allow user namespaces: sysctl kernel.unprivileged_userns_clone=1 (Debian), user.max_user_namespaces=15000"


class BwrapBackend:
    """Starts sandboxes in namespaces of their own; `store` keeps built environments (a default per user)."""

    name = "bwrap"
    environments: EnvironmentBuilder

    def __init__(self, limits: Limits | None = None, *, store: Path | None = None, network: bool = True) -> None:
        self._limits = limits or Limits()
        self._root = store or store_root()
        self._network = network
        self._version = ""
        self._alive: set[BwrapSandbox] = set()

    async def start(self, progress: Progress) -> None:
        """Find the interpreter and try one sandbox.

        Raises:
            SandboxUnavailable: bubblewrap is missing or the system forbids it; the message says the remedy.
        """
        if platform.system() != "Linux":
            raise SandboxUnavailable(f"bubblewrap needs Linux, this is {platform.system()}: use Docker")
        executable = shutil.which("bwrap")
        if executable is None:
            raise SandboxUnavailable(f"bubblewrap is not installed; {_INSTALL}")
        self._interpreter = await asyncio.to_thread(find_interpreter)
        self._builder = BwrapInstaller(executable, self._interpreter, self._root)
        self.environments = WheelEnvironments(self._builder, network=self._network)
        self._command = [*base_command(executable, self._interpreter), *self._mounts()]
        process = await asyncio.create_subprocess_exec(executable, "--version", stdout=asyncio.subprocess.PIPE)
        self._version = (await process.communicate())[0].decode().strip().removeprefix("bubblewrap ")
        try:
            await (await self.acquire()).release()
        except SandboxError as error:
            raise SandboxUnavailable(f"bubblewrap does not work here: {error}. {_remedy(str(error))}") from error
        progress(f"sandbox: bubblewrap {self._version}, Python {self._interpreter.version}")

    def _mounts(self) -> list[str]:
        size = str(self._limits.files)
        mounts = ["--ro-bind", str(self._builder.envs), "/envs"]
        for folder in ("/tmp", "/work", "/dev/shm"):
            mounts += ["--size", size, "--tmpfs", folder]
        return [*mounts, "--remount-ro", "/", "--chdir", "/work"]

    def describe(self) -> Mapping[str, str]:
        """Return what a manifest records."""
        return {
            "backend": self.name,
            "version": self._version,
            "python": self._interpreter.version,
            "platform": str(self._interpreter.tag),
        }

    async def acquire(self) -> Sandbox:
        """Start a fresh sandbox.

        Raises:
            SandboxError: it could not be started.
        """
        inner = supervisor_argv(self._interpreter.path, user=None, work="/work")
        sandbox = await BwrapSandbox.start([*self._command, "--", *inner], self._limits)
        self._alive.add(sandbox)
        sandbox.on_release = self._alive.discard
        return sandbox

    async def close(self) -> None:
        """Release what is still alive."""
        for sandbox in tuple(self._alive):
            await sandbox.release()


class BwrapSandbox:
    """One set of namespaces with its supervisor."""

    def __init__(self, process: asyncio.subprocess.Process, limits: Limits) -> None:
        assert process.stdout is not None
        assert process.stdin is not None
        self._process = process
        self._channel = Channel(
            process.stdout, process.stdin, limits, processes=_process_limit(limits), why=self._last_words
        )
        self.on_release: Any = lambda _sandbox: None

    @classmethod
    async def start(cls, command: Sequence[str], limits: Limits) -> BwrapSandbox:
        """Start bubblewrap and wait for the supervisor inside.

        Raises:
            SandboxError: it did not come up.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                cwd="/",
                env={},
                **as_nobody(),
            )
        except OSError as error:
            raise SandboxError(f"bubblewrap could not be started: {error}") from error
        sandbox = cls(process, limits)
        try:
            await sandbox._channel.greet(_START_SECONDS)
        except BaseException:
            await sandbox.release()
            raise
        return sandbox

    async def run(self, job: Job) -> RunResult:
        """Run a program; see `Sandbox.run`."""
        return await self._channel.run(job)

    async def command(self, argv: Sequence[str], timeout: float) -> CommandResult:
        """Run a command; see `Sandbox.command`."""
        return await self._channel.command(argv, timeout)

    async def release(self) -> None:
        """Kill all of it; the kernel ends everything in the namespaces with the first process."""
        self.on_release(self)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await asyncio.shield(_reaped(self._process))

    async def _last_words(self) -> str:
        assert self._process.stderr is not None
        try:
            async with asyncio.timeout(1):
                return (await self._process.stderr.read(2000)).decode("utf-8", "replace").strip()
        except TimeoutError:
            return ""


async def _reaped(process: asyncio.subprocess.Process) -> None:
    await process.wait()
    # the pipes are closed by the transport, which asyncio keeps to itself
    process._transport.close()  # type: ignore[attr-defined]


def base_command(executable: str, interpreter: Interpreter) -> list[str]:
    """Return bubblewrap with all namespaces unshared and only what the interpreter needs of the host."""
    command = [executable, "--unshare-all", "--die-with-parent", "--as-pid-1", "--new-session", "--cap-drop", "ALL"]
    command += ["--hostname", "sandbox", "--clearenv", "--proc", "/proc", "--dev", "/dev"]
    for name, value in ENVIRONMENT.items():
        command += ["--setenv", name, value]
    for folder in ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin"):
        path = Path(folder)
        if path.is_symlink():
            command += ["--symlink", str(path.readlink()), folder]
        elif path.is_dir():
            command += ["--ro-bind", folder, folder]
    for file in ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime"):
        command += ["--ro-bind-try", file, file]
    for folder in interpreter.folders:
        command += ["--ro-bind", folder, folder]
    return command


def as_nobody() -> dict[str, Any]:
    """Return how a process is started by root: as a user without any right of its own."""
    if os.geteuid() != 0:
        return {}
    return {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": []}


def _process_limit(limits: Limits) -> int:
    """Return the limit to set inside: since Linux 5.14 it counts per user namespace, before per user of the host."""
    major, minor = (int(part) for part in platform.release().split(".")[:2])
    return limits.processes if (major, minor) >= (5, 14) else 0


def _remedy(error: str) -> str:
    if "uid map" in error or "RTM_NEWADDR" in error or "Operation not permitted" in error:
        return _APPARMOR
    return _USERNS
