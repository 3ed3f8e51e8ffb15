"""Bubblewrap: what it is called with, and one that runs, ended so that nothing in its namespaces is left."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, SubprocessStreamProtocol
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from agent.errors import SandboxError
from agent.sandbox.inside import ENVIRONMENT
from agent.sandbox.interpreter import UNPRIVILEGED, Interpreter, as_unprivileged

T = TypeVar("T")

WORK = "/work"
"""A sandbox's folder for what its programs write."""

EMPTY = "ld.so.cache"
"""The file of a sandbox's /etc that is empty."""

_SYSTEM = ("/usr", "/lib", "/lib32", "/libx32", "/lib64", "/bin", "/sbin")
_LOCAL_SETTINGS = "/usr/local/etc"
_FORBIDS_NAMESPACES = (0, 8)
_END_SECONDS = 5.0
_BUFFER = 1 << 18
_LAST_WORDS = 2000
_PROFILE = """\
abi <abi/4.0>,
include <tunables/global>
profile bwrap /usr/bin/bwrap flags=(unconfined) {
  userns,
}"""


@dataclass(frozen=True)
class Bubblewrap:
    """An installed bubblewrap and the interpreter to run in it.

    `etc` is the folder that is /etc inside; `filter` a program for seccomp, which holds for all that runs inside.
    """

    executable: str
    version: tuple[int, ...]
    interpreter: Interpreter
    etc: Path
    filter: Path | None = None

    def build_arguments(
        self,
        argv: Sequence[str],
        *,
        read_only: Mapping[Path, str],
        tmpfs: Mapping[str, int],
        writable: Mapping[Path, str],
    ) -> list[str]:
        """Return what to call it with to run `argv` as the first process of fresh namespaces, without network.

        `shown` maps host folders to where they are to be read, `kept` to where they may be written as well; `tmpfs`
        maps empty folders to their size in bytes. Nothing else can be written.
        """
        options = [*self._isolation(), *self._system()]
        for folder, size in tmpfs.items():
            options += ["--size", str(size), "--tmpfs", folder]
        # after the empty folders, which would hide an interpreter below them
        for name in self.interpreter.folders:
            options += ["--ro-bind", name, name]
        if Path(_LOCAL_SETTINGS).is_dir():  # may hold the tokens of other programs, such as npm
            options += ["--tmpfs", _LOCAL_SETTINGS, "--remount-ro", _LOCAL_SETTINGS]
        for name in ("/usr", *self.interpreter.folders):
            if (settings := Path(name) / "pip.conf").is_file():  # may hold an index's password
                options += ["--ro-bind", str(self.etc / EMPTY), str(settings)]
        for host, inside in read_only.items():
            options += ["--ro-bind", str(host), inside]
        for host, inside in writable.items():
            options += ["--bind", str(host), inside]
        # a tmpfs of bubblewrap's own has no size limit
        options += ["--remount-ro", "/dev", "--remount-ro", "/"]
        return [*options, "--", *argv]

    def _isolation(self) -> list[str]:
        options = ["--unshare-all", "--unshare-user", "--uid", str(UNPRIVILEGED), "--gid", str(UNPRIVILEGED)]
        if self.version >= _FORBIDS_NAMESPACES:
            options.append("--disable-userns")
        options += ["--as-pid-1", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox"]
        options.append("--clearenv")
        folders = dict.fromkeys([str(Path(self.interpreter.path).parent), *ENVIRONMENT["PATH"].split(":")])
        for name, value in {**ENVIRONMENT, "PATH": ":".join(folders)}.items():
            options += ["--setenv", name, value]
        return options

    def _system(self) -> list[str]:
        options = ["--proc", "/proc", "--dev", "/dev", "--ro-bind", str(self.etc), "/etc"]
        for name in ("/etc/ld.so.cache", "/etc/alternatives"):
            options += ["--ro-bind-try", name, name]
        for folder in map(Path, _SYSTEM):
            if folder.is_symlink():
                options += ["--symlink", str(folder.readlink()), str(folder)]
            elif folder.is_dir():
                options += ["--ro-bind", str(folder), str(folder)]
        return options


class BwrapProcess:
    """A process of bubblewrap, which waits for the first one in its namespaces. Owned by one event loop."""

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: SubprocessStreamProtocol) -> None:
        assert protocol.stdin is not None
        assert protocol.stdout is not None
        assert protocol.stderr is not None
        self.writer = protocol.stdin
        self.reader = protocol.stdout
        self.stderr = protocol.stderr
        self._transport = transport
        self._process = asyncio.subprocess.Process(transport, protocol, asyncio.get_running_loop())

    @classmethod
    async def spawn(cls, bubblewrap: Bubblewrap, arguments: Sequence[str]) -> BwrapProcess:
        """Start bubblewrap with `Bubblewrap.build_arguments`, with pipes for its streams. Not to be cancelled.

        Raises:
            SandboxError: it could not be started.
        """
        loop = asyncio.get_running_loop()
        try:
            with _open_file(bubblewrap.filter) as descriptors:
                confined = [word for descriptor in descriptors for word in ("--seccomp", str(descriptor))]
                transport, protocol = await loop.subprocess_exec(
                    lambda: SubprocessStreamProtocol(_BUFFER, loop), bubblewrap.executable, *confined, *arguments,
                    stdin=PIPE, stdout=PIPE, stderr=PIPE, pass_fds=descriptors,
                    start_new_session=True, cwd="/", env={}, **as_unprivileged(),
                )  # fmt: skip
        except OSError as error:
            raise SandboxError(f"bubblewrap could not be started: {error}") from error
        return cls(transport, protocol)

    @property
    def first_pid(self) -> int | None:
        """The pid, to the host, of the first process inside; None where the kernel does not say."""
        return next(iter(_find_children(self._process.pid)), None)

    def kill(self) -> None:
        """Kill the first process inside, with which the kernel ends all others; bubblewrap ends when they have.

        Where there is none yet, the group is killed: one that bubblewrap makes just then would wait for it forever.
        """
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                if (first := self.first_pid) is None:
                    os.killpg(self._process.pid, signal.SIGKILL)
                else:
                    os.kill(first, signal.SIGKILL)

    async def end(self) -> None:
        """Kill all of it, wait until it is gone, and close its streams."""
        self.kill()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._transport.kill()
            await self._process.wait()
        finally:
            self._transport.close()
            # what it had not read any more is nobody's loss; asyncio before 3.11.4 complains of it unless it is asked
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    await self.writer.wait_closed()

    async def describe_end(self) -> str:
        """Return what it said on stderr when it ended, else how it ended."""
        said = b""
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                said = await self.stderr.read(_LAST_WORDS)
                await self._process.wait()
        ended = "" if self._process.returncode is None else f"it ended with exit code {self._process.returncode}"
        return said.decode("utf-8", "replace").strip() or ended


@contextmanager
def _open_file(file: Path | None) -> Iterator[tuple[int, ...]]:
    """Open a file anew: bubblewrap reads it to its end, so that no two may share a descriptor."""
    if file is None:
        yield ()
        return
    descriptor = os.open(file, os.O_RDONLY)
    try:
        yield (descriptor,)
    finally:
        os.close(descriptor)


async def complete_or_undo(work: Awaitable[T], undo: Callable[[T], Awaitable[None]]) -> T:
    """Return what `work` gives, and let it finish even when this is cancelled: then its result is undone at once."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.cancelled():
            await asyncio.shield(_undo(task, undo))
        raise


async def _undo(task: asyncio.Future[T], undo: Callable[[T], Awaitable[None]]) -> None:
    with suppress(SandboxError):  # nobody waits for it any more
        await undo(await task)


def _find_children(pid: int) -> list[int]:
    """Return a process's children; none where the kernel does not say."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    except OSError:
        return []


def diagnose(printed: str) -> str:
    """Say what to do about a bubblewrap that printed this and ended."""
    if "Unknown option" in printed:
        return "bubblewrap 0.7 or later is needed (Debian 12, Ubuntu 23.04): install a later one, or use Docker"
    if _restricted_by_apparmor() and ("uid map" in printed or "RTM_NEWADDR" in printed or "not permitted" in printed):
        return (
            "AppArmor keeps user namespaces from it, as Ubuntu does since 23.10. Allow them to bubblewrap alone: put\n"
            f"{_PROFILE}\ninto /etc/apparmor.d/bwrap, then: sudo apparmor_parser -r /etc/apparmor.d/bwrap"
        )
    if "Can't find source path" in printed:
        return "started by root it runs as nobody: that path must lie in folders that everybody may enter"
    if "namespace" in printed:
        return (
            "this system allows no user namespaces: sudo sysctl -w user.max_user_namespaces=15000, on older Debian "
            "also sudo sysctl -w kernel.unprivileged_userns_clone=1; inside a container its engine must allow them"
        )
    if "/proc" in printed:
        return "inside a container, its engine must leave /proc unmasked (--security-opt systempaths=unconfined)"
    return "try it by hand: bwrap --unshare-all --ro-bind / / true"


def _restricted_by_apparmor() -> bool:
    try:
        text = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").read_text(encoding="ascii")
    except OSError:
        return False
    return text.strip() == "1"
