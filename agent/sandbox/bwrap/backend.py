"""The bubblewrap backend. It uses fresh namespaces for each pair, needs no daemon, and runs only on Linux."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agent.errors import RunnerCrashed, SandboxError, SandboxUnavailable
from agent.sandbox.base import (
    EnvironmentBuilder,
    Notify,
    RunResult,
    SandboxBackend,
    SandboxJob,
    SandboxLimits,
    Toolchain,
)
from agent.sandbox.bwrap.cgroups import Cgroup, ControlGroups
from agent.sandbox.bwrap.environments import BwrapEnvironmentStore
from agent.sandbox.bwrap.folders import INSIDE, BwrapFolders
from agent.sandbox.bwrap.process import WORK, Bubblewrap, BwrapProcess, complete_or_undo, diagnose
from agent.sandbox.channel import ChannelSandbox
from agent.sandbox.dependencies.environments import DependencyPolicy, WheelEnvironments
from agent.sandbox.folders import get_shared_cache
from agent.sandbox.inside import build_supervisor_argv, read_source
from agent.sandbox.interpreter import find_interpreter
from agent.sandbox.mounts import Mount, check_hidden_folders
from agent.sandbox.pool import Pool
from agent.sandbox.registry import INSTALL
from agent.sandbox.seccomp import find_kernel_filter
from agent.sandbox.toolchains import Toolchains

_START_SECONDS = 20.0
_TEMPORARY = ("/tmp", "/dev/shm", WORK)
_TRIAL = SandboxJob(read_source("python_harness"), "def test_trial(): pass", ("test_trial",), timeout=10.0)


class BwrapBackend(SandboxBackend):
    """Starts each sandbox in new namespaces. Use it from one event loop.

    Args:
        limits: the limits of one sandbox. Without control groups, the memory limit applies to each process separately,
            and CPU time is not limited.
        store: the folder for the environment cache, which later runs reuse.
        dependency_policy: the permitted dependencies, and the size limit for the environment cache.
        python: the minor version of the interpreter in sandboxes, such as `3.9`. See `find_interpreter` for the
            default.
        mounts: host folders that every sandbox can read.
        pool: the number of sandboxes to start in advance.
        starts: the maximum number of sandboxes that start at once.
    """

    name = "bwrap"
    limits: SandboxLimits

    def __init__(
        self,
        limits: SandboxLimits | None = None,
        *,
        store: Path | None = None,
        dependency_policy: DependencyPolicy = DependencyPolicy(),  # noqa: B008
        python: str | None = None,
        mounts: Sequence[Mount] = (),
        pool: int = 4,
        starts: int = 2,
    ) -> None:
        self.limits = limits or SandboxLimits()
        self._root = store or get_shared_cache()
        self._mounts = tuple(mounts)
        self._python = python
        self._setup: tuple[Bubblewrap, BwrapFolders] | None = None
        self._compiled: dict[str, str] = {}
        self._groups = ControlGroups({}, {})
        self._last_argv: list[str] = []
        self._alive: set[BwrapSandbox] = set()
        self._pool = Pool(self._start_sandbox, size=pool, starts=starts)
        self._toolchains = Toolchains(self._start_sandbox, self._pool.renew)
        self.store = BwrapEnvironmentStore(self._require_setup)
        self.environments: EnvironmentBuilder = WheelEnvironments(self.store, policy=dependency_policy)

    async def start(self, progress: Notify) -> None:
        """Find bubblewrap and an interpreter, and test a sandbox. See `SandboxBackend.start`."""
        if self._setup is not None:
            return
        self.store.on_wait = progress
        bubblewrap, folders = await asyncio.to_thread(_find_setup, self._root, self._python)
        check_hidden_folders(self._mounts, bubblewrap.interpreter.folders)
        self._compiled = {read_source("python_harness"): folders.locate_compiled("python_harness")}
        self._groups = await asyncio.to_thread(ControlGroups.find)
        self._setup = bubblewrap, folders
        try:
            await self._test_sandbox()
        except BaseException:
            self._setup = None
            raise
        self._pool.fill()

    def listen(self, on_wait: Notify) -> None:
        """Call `on_wait` with the reason when work must wait for packages to be installed."""
        self.store.on_wait = on_wait

    def describe(self) -> Mapping[str, str]:
        """Return the versions of bubblewrap, the interpreter and the kernel, and the platform."""
        if self._setup is None:
            return {"backend": self.name}
        bubblewrap, _ = self._setup
        return {
            "backend": self.name,
            "bubblewrap": ".".join(map(str, bubblewrap.version)),
            "python": bubblewrap.interpreter.version,
            "platform": f"linux/{bubblewrap.interpreter.tag.machine}",
            "kernel": platform.release(),
            **self._toolchains.versions,
        }

    def unenforced(self) -> Mapping[str, str]:
        """Return the limits that this machine cannot enforce, mapped to the reasons."""
        unenforced = {"inodes": "bubblewrap limits the size of temporary folders, but not how many files they contain"}
        effects = {"memory": "applies to each process instead of the whole sandbox", "cpu": "not limited"}
        for name, effect in effects.items():
            if name in self._groups.missing:
                unenforced[name] = f"{effect}: {self._groups.missing[name]}"
        if self._setup is not None and self._setup[0].filter is None:
            unenforced["seccomp"] = f"there is no system call filter for the {platform.machine()} architecture"
        return unenforced

    async def require_toolchain(self, toolchain: Toolchain) -> str:
        """Return the version of a toolchain. See `SandboxBackend.require_toolchain`."""
        return await self._toolchains.require(toolchain)

    async def acquire(self) -> BwrapSandbox:
        """Return an unused sandbox whose supervisor responds. No sandbox is left behind if the call is cancelled."""
        self._require_setup()
        return await self._pool.take()

    async def close(self) -> None:
        """Release every sandbox."""
        await self._pool.close()
        for sandbox in tuple(self._alive):
            await sandbox.release()
        self.store.leases.close()
        self._setup = None

    async def _start_sandbox(self) -> BwrapSandbox:
        return await complete_or_undo(self._open_sandbox(), BwrapSandbox.release)

    def _build_arguments(self) -> list[str]:
        bubblewrap, folders = self._require_setup()
        mounts = (*self._mounts, *self._toolchains.mounts)
        return bubblewrap.build_arguments(
            build_supervisor_argv(
                bubblewrap.interpreter.path, user=None, work=WORK, compiled=folders.locate_compiled("supervisor")
            ),
            read_only={folders.envs: "/envs", folders.inside: INSIDE, **{mount.host: mount.target for mount in mounts}},
            tmpfs=dict.fromkeys(_TEMPORARY, self.limits.files),
            writable={},
        )

    async def _open_sandbox(self) -> BwrapSandbox:
        process = await BwrapProcess.spawn(self._require_setup()[0], self._build_arguments())
        sandbox = BwrapSandbox(self._alive, process, self.limits, self._compiled, self._last_argv)
        try:
            await sandbox.open(_START_SECONDS)
            await sandbox.confine(self._groups)
            sandbox.prepare_runner()
        except BaseException:
            await sandbox.release()
            raise
        return sandbox

    async def _test_sandbox(self) -> None:
        try:
            sandbox = await self._start_sandbox()
            try:
                result = await sandbox.run(_TRIAL)
            finally:
                await sandbox.release()
        except SandboxError as error:
            raise SandboxUnavailable(
                f"bubblewrap is installed but does not work: {error}\n{diagnose(str(error))}"
            ) from error
        if not result.clean:
            raise SandboxUnavailable(f"bubblewrap starts but cannot run a program: {_explain_trial(result)}")

    def _require_setup(self) -> tuple[Bubblewrap, BwrapFolders]:
        if self._setup is None:
            raise SandboxError("the bubblewrap backend was not started or is already closed")
        return self._setup


class BwrapSandbox(ChannelSandbox):
    """A sandbox in its own namespaces."""

    def __init__(
        self,
        alive: set[BwrapSandbox],
        process: BwrapProcess,
        limits: SandboxLimits,
        compiled: Mapping[str, str],
        last_argv: list[str],
    ) -> None:
        super().__init__(
            alive,
            process.reader,
            process.writer,
            limits,
            processes=_choose_process_limit(limits),
            compiled=compiled,
            last_argv=last_argv,
        )
        self._process = process
        self._group: Cgroup | None = None

    async def confine(self, groups: ControlGroups) -> None:
        """Put the supervisor into a control group before any program runs. Its future children join the group, too."""
        if (first := self._process.first_pid) is not None:
            self._group = await asyncio.to_thread(groups.enter, first, self._limits)

    @property
    def usable(self) -> bool:
        """Whether the sandbox's processes are still running."""
        return not self._process.reader.at_eof()

    async def run(self, job: SandboxJob) -> RunResult:
        """Run a program. Sets `limit` to `memory` if the kernel killed a process because memory ran out."""
        kills = 0 if self._group is None else self._group.count_kills()
        result = await super().run(job)
        out_of_memory = self._group is not None and self._group.count_kills() > kills
        return replace(result, limit="memory") if out_of_memory else result

    async def _destroy(self) -> None:
        """Kill every process of the sandbox and wait until they exit."""
        self._process.kill()
        await asyncio.shield(self._end_process())

    async def _end_process(self) -> None:
        await self._process.end()
        if self._group is not None:
            await asyncio.to_thread(self._group.remove)

    async def _explain(self, error: Exception) -> RunnerCrashed:  # noqa: ARG002
        return RunnerCrashed(f"the sandbox failed: {await self._process.describe_end() or 'its first process ended'}")


def _find_setup(root: Path, python: str | None) -> tuple[Bubblewrap, BwrapFolders]:
    """Find bubblewrap, an interpreter and the folders to mount. Blocks."""
    if platform.system() != "Linux":
        raise SandboxUnavailable(f"bubblewrap needs Linux, but this machine runs {platform.system()}. Use Docker.")
    executable = shutil.which("bwrap")
    if executable is None:
        raise SandboxUnavailable(f"bubblewrap is not installed. Install it: {INSTALL}")
    interpreter = find_interpreter(python)
    folders = BwrapFolders(root, interpreter)
    seccomp_filter = find_kernel_filter(interpreter.tag.machine)
    process = subprocess.run([executable, "--version"], capture_output=True, text=True, check=False)
    version = tuple(map(int, re.findall(r"\d+", process.stdout)))
    return Bubblewrap(executable, version, interpreter, folders.etc, seccomp_filter), folders


def _explain_trial(result: RunResult) -> str:
    detail = result.stderr.strip() or f"exit code {result.exit_code}"
    if Path(os.devnull).stat().st_mode & 0o666 != 0o666:
        detail += f". Run as root: chmod 666 {os.devnull}"
    return detail


def _choose_process_limit(limits: SandboxLimits) -> int:
    """Return the value for RLIMIT_NPROC, or 0 for no limit.

    Kernels before Linux 5.14 count the processes that a host user runs in all namespaces, so the limit cannot be used.
    """
    major, minor = (int(part) for part in re.findall(r"\d+", platform.release())[:2])
    return limits.processes if (major, minor) >= (5, 14) else 0
