"""The bubblewrap backend: fresh namespaces for each pair, no daemon, Linux only."""

from __future__ import annotations

import asyncio
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
    Progress,
    RunResult,
    SandboxBackend,
    SandboxJob,
    SandboxLimits,
)
from agent.sandbox.bwrap.cgroups import Cgroup, ControlGroups
from agent.sandbox.bwrap.environments import BwrapEnvironmentStore
from agent.sandbox.bwrap.folders import INSIDE, BwrapFolders
from agent.sandbox.bwrap.process import WORK, Bubblewrap, BwrapProcess, complete_or_undo, diagnose
from agent.sandbox.channel import ChannelSandbox
from agent.sandbox.dependencies.environments import Supply, WheelEnvironments
from agent.sandbox.folders import shared_cache
from agent.sandbox.inside import source, supervisor_argv
from agent.sandbox.interpreter import find_interpreter
from agent.sandbox.mounts import Mount, refuse_hiding
from agent.sandbox.pool import Pool
from agent.sandbox.registry import INSTALL
from agent.sandbox.seccomp import kernel_filter

_START_SECONDS = 20.0
_TEMPORARY = ("/tmp", "/dev/shm", WORK)
_TRIAL = SandboxJob(source("python_harness"), "def test_trial(): pass", ("test_trial",), timeout=10.0)


class BwrapBackend(SandboxBackend):
    """Starts sandboxes in namespaces of their own, from one event loop.

    Args:
        limits: what one sandbox may use. Where no control groups can be had, memory holds for each process, and cores
            are not limited.
        store: the folder that keeps dependency environments from run to run.
        supply: which dependencies may be had, and how many are kept.
        python: the minor version of the interpreter that sandboxes run, as `3.9`; by default this process's own.
        mounts: what of the host every sandbox may read.
        pool: how many sandboxes wait, started, for the next pairs.
        starts: how many are starting at once.
    """

    name = "bwrap"
    limits: SandboxLimits

    def __init__(
        self,
        limits: SandboxLimits | None = None,
        *,
        store: Path | None = None,
        supply: Supply = Supply(),  # noqa: B008
        python: str | None = None,
        mounts: Sequence[Mount] = (),
        pool: int = 4,
        starts: int = 2,
    ) -> None:
        self.limits = limits or SandboxLimits()
        self._root = store or shared_cache()
        self._mounts = tuple(mounts)
        self._python = python
        self._setup: tuple[Bubblewrap, BwrapFolders] | None = None
        self._arguments: list[str] = []
        self._compiled: dict[str, str] = {}
        self._groups = ControlGroups({}, {})
        self._alive: set[BwrapSandbox] = set()
        self._pool = Pool(self._fresh, size=pool, starts=starts)
        self.store = BwrapEnvironmentStore(self._running)
        self.environments: EnvironmentBuilder = WheelEnvironments(self.store, supply=supply)

    async def start(self, progress: Progress) -> None:
        """Find bubblewrap and an interpreter, and try one sandbox."""
        if self._setup is not None:
            return
        self.store.on_wait = progress
        bubblewrap, store = await asyncio.to_thread(_find, self._root, self._python)
        refuse_hiding(self._mounts, bubblewrap.interpreter.folders)
        self._compiled = {source("python_harness"): store.compiled_path("python_harness")}
        self._arguments = bubblewrap.build_arguments(
            supervisor_argv(
                bubblewrap.interpreter.path, user=None, work=WORK, compiled=store.compiled_path("supervisor")
            ),
            read_only={
                store.envs: "/envs",
                store.inside: INSIDE,
                **{mount.host: mount.target for mount in self._mounts},
            },
            tmpfs=dict.fromkeys(_TEMPORARY, self.limits.files),
            writable={},
        )
        self._groups = await asyncio.to_thread(ControlGroups.find)
        self._setup = bubblewrap, store
        try:
            await self._try()
        except BaseException:
            self._setup = None
            raise
        self._pool.fill()

    def listen(self, waits: Progress) -> None:
        """Have `waits` given the packages that are being installed."""
        self.store.on_wait = waits

    def describe(self) -> Mapping[str, str]:
        """Return versions of bubblewrap, interpreter and kernel, as of the start."""
        if self._setup is None:
            return {"backend": self.name}
        bubblewrap, _ = self._setup
        return {
            "backend": self.name,
            "bubblewrap": ".".join(map(str, bubblewrap.version)),
            "python": bubblewrap.interpreter.version,
            "platform": f"linux/{bubblewrap.interpreter.tag.machine}",
            "kernel": platform.release(),
        }

    def unenforced(self) -> Mapping[str, str]:
        """Return what this machine cannot enforce, each with the reason."""
        left = {"inodes": "bubblewrap's temporary folders have a size and no number of files"}
        effects = {"memory": "holds for each process of a sandbox, not for their sum", "cpu": "not limited"}
        for name, effect in effects.items():
            if name in self._groups.missing:
                left[name] = f"{effect}: {self._groups.missing[name]}"
        if self._setup is not None and self._setup[0].filter is None:
            left["seccomp"] = f"no filter was made for this kind of machine, {platform.machine()}"
        return left

    async def acquire(self) -> BwrapSandbox:
        """Return a sandbox that nobody had before, with a supervisor that answers; cancelling this leaves none."""
        self._running()
        return await self._pool.take()

    async def close(self) -> None:
        """Release every sandbox."""
        await self._pool.close()
        for sandbox in tuple(self._alive):
            await sandbox.release()
        self.store.leases.close()
        self._setup = None

    async def _fresh(self) -> BwrapSandbox:
        return await complete_or_undo(self._open(), BwrapSandbox.release)

    async def _open(self) -> BwrapSandbox:
        process = await BwrapProcess.spawn(self._running()[0], self._arguments)
        sandbox = BwrapSandbox(self._alive, process, self.limits, self._compiled)
        try:
            await sandbox.open(_START_SECONDS)
            await sandbox.confine(self._groups)
        except BaseException:
            await sandbox.release()
            raise
        return sandbox

    async def _try(self) -> None:
        try:
            sandbox = await self._fresh()
            try:
                result = await sandbox.run(_TRIAL)
            finally:
                await sandbox.release()
        except SandboxError as error:
            raise SandboxUnavailable(
                f"bubblewrap is here, but does not work: {error}\n{diagnose(str(error))}"
            ) from error
        if not result.clean:
            raise SandboxUnavailable(f"bubblewrap starts, but a program does not run in it: {result.stderr or result}")

    def _running(self) -> tuple[Bubblewrap, BwrapFolders]:
        if self._setup is None:
            raise SandboxError("the bubblewrap backend is not started, or closed")
        return self._setup


class BwrapSandbox(ChannelSandbox):
    """One set of namespaces."""

    def __init__(
        self, alive: set[BwrapSandbox], process: BwrapProcess, limits: SandboxLimits, compiled: Mapping[str, str]
    ) -> None:
        super().__init__(
            alive, process.reader, process.writer, limits, processes=_process_limit(limits), compiled=compiled
        )
        self._process = process
        self._group: Cgroup | None = None

    async def confine(self, groups: ControlGroups) -> None:
        """Put the supervisor, and so all that it will start, into a control group; before anything else runs."""
        if (first := self._process.first_pid) is not None:
            self._group = await asyncio.to_thread(groups.enter, first, self._limits)

    @property
    def usable(self) -> bool:
        """Whether its processes are still there."""
        return not self._process.reader.at_eof()

    async def run(self, job: SandboxJob) -> RunResult:
        """Run a program; that the kernel killed for lack of memory is known from the control group."""
        kills = 0 if self._group is None else self._group.kills()
        result = await super().run(job)
        exceeded = self._group is not None and self._group.kills() > kills
        return replace(result, limit="memory") if exceeded else result

    async def _destroy(self) -> None:
        """End every process of the sandbox and wait until they are gone."""
        self._process.kill()
        await asyncio.shield(self._finish())

    async def _finish(self) -> None:
        await self._process.end()
        if self._group is not None:
            await asyncio.to_thread(self._group.remove)

    async def _explain(self, error: Exception) -> RunnerCrashed:  # noqa: ARG002
        return RunnerCrashed(f"the sandbox broke: {await self._process.describe_end() or 'its first process ended'}")


def _find(root: Path, python: str | None) -> tuple[Bubblewrap, BwrapFolders]:
    """Find what sandboxes are made of. Blocks."""
    if platform.system() != "Linux":
        raise SandboxUnavailable(f"bubblewrap is for Linux, and this is {platform.system()}: use Docker")
    executable = shutil.which("bwrap")
    if executable is None:
        raise SandboxUnavailable(f"bubblewrap is not installed: {INSTALL}")
    interpreter = find_interpreter(python)
    store = BwrapFolders(root, interpreter)
    confined = kernel_filter(interpreter.tag.machine)
    return Bubblewrap(executable, _version(executable), interpreter, store.etc, confined), store


def _version(executable: str) -> tuple[int, ...]:
    done = subprocess.run([executable, "--version"], capture_output=True, text=True, check=False)
    return tuple(map(int, re.findall(r"\d+", done.stdout)))


def _process_limit(limits: SandboxLimits) -> int:
    """Return the limit to set inside: since Linux 5.14 it counts per user namespace, before per user of the host."""
    major, minor = (int(part) for part in re.findall(r"\d+", platform.release())[:2])
    return limits.processes if (major, minor) >= (5, 14) else 0
