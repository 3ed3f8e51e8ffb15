"""Builds bubblewrap's command line and manages its process, which ends together with the sandbox's namespaces."""

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
"""The working folder of programs in a sandbox."""

EMPTY = "ld.so.cache"
"""The name of an empty file in a sandbox's /etc."""

_SYSTEM = ("/usr", "/lib", "/lib32", "/libx32", "/lib64", "/bin", "/sbin")
_LOCAL_SETTINGS = "/usr/local/etc"
_FORBIDS_NAMESPACES = (0, 8)
_END_SECONDS = 5.0
_BUFFER = 1 << 18
_MAX_STDERR = 2000
_PROFILE = """\
abi <abi/4.0>,
include <tunables/global>
profile bwrap /usr/bin/bwrap flags=(unconfined) {
  userns,
}"""


@dataclass(frozen=True)
class Bubblewrap:
    """An installed bubblewrap executable and the interpreter to run in its sandboxes.

    `etc` is the host folder that is mounted as /etc. `filter` is a file with a seccomp program, which applies to every
    process in a sandbox.
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
        """Return the arguments that run `argv` as the first process in new namespaces, without network access.

        `read_only` and `writable` map host folders to their mount points. `tmpfs` maps the mount points of empty
        writable folders to their sizes in bytes. All other folders are read-only.
        """
        options = [*self._list_isolation_options(), *self._list_system_options()]
        for folder, size in tmpfs.items():
            options += ["--size", str(size), "--tmpfs", folder]
        # mounted after the tmpfs folders, which would hide an interpreter below them
        for name in self.interpreter.folders:
            options += ["--ro-bind", name, name]
        if Path(_LOCAL_SETTINGS).is_dir():  # it may contain tokens for other programs, such as npm
            options += ["--tmpfs", _LOCAL_SETTINGS, "--remount-ro", _LOCAL_SETTINGS]
        for name in ("/usr", *self.interpreter.folders):
            if (settings := Path(name) / "pip.conf").is_file():  # it may contain the password for a package index
                options += ["--ro-bind", str(self.etc / EMPTY), str(settings)]
        for host, inside in read_only.items():
            options += ["--ro-bind", str(host), inside]
        for host, inside in writable.items():
            options += ["--bind", str(host), inside]
        # the tmpfs folders that bubblewrap itself mounts have no size limit
        options += ["--remount-ro", "/dev", "--remount-ro", "/"]
        return [*options, "--", *argv]

    def _list_isolation_options(self) -> list[str]:
        options = ["--unshare-all", "--unshare-user", "--uid", str(UNPRIVILEGED), "--gid", str(UNPRIVILEGED)]
        if self.version >= _FORBIDS_NAMESPACES:
            options.append("--disable-userns")
        options += ["--as-pid-1", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox"]
        options.append("--clearenv")
        folders = dict.fromkeys([str(Path(self.interpreter.path).parent), *ENVIRONMENT["PATH"].split(":")])
        for name, value in {**ENVIRONMENT, "PATH": ":".join(folders)}.items():
            options += ["--setenv", name, value]
        return options

    def _list_system_options(self) -> list[str]:
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
    """A bubblewrap process, which waits for the first process in its namespaces. Use it from one event loop."""

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
        """Start bubblewrap with arguments from `build_arguments` and pipes for its streams. Must not be cancelled.

        Raises:
            SandboxError: bubblewrap did not start.
        """
        loop = asyncio.get_running_loop()
        try:
            with _open_file(bubblewrap.filter) as descriptors:
                seccomp = [word for descriptor in descriptors for word in ("--seccomp", str(descriptor))]
                transport, protocol = await loop.subprocess_exec(
                    lambda: SubprocessStreamProtocol(_BUFFER, loop), bubblewrap.executable, *seccomp, *arguments,
                    stdin=PIPE, stdout=PIPE, stderr=PIPE, pass_fds=descriptors,
                    start_new_session=True, cwd="/", env={}, **as_unprivileged(),
                )  # fmt: skip
        except OSError as error:
            raise SandboxError(f"cannot start bubblewrap: {error}") from error
        return cls(transport, protocol)

    @property
    def first_pid(self) -> int | None:
        """The host PID of the first process in the sandbox, or None if the kernel does not report it."""
        return next(iter(_find_children(self._process.pid)), None)

    def kill(self) -> None:
        """Kill the first process in the sandbox. The kernel then kills all other processes, and bubblewrap exits.

        If the first process does not exist yet, kills the process group instead. Otherwise, a first process that is
        created at this moment would wait for bubblewrap forever.
        """
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                if (first := self.first_pid) is None:
                    os.killpg(self._process.pid, signal.SIGKILL)
                else:
                    os.kill(first, signal.SIGKILL)

    async def end(self) -> None:
        """Kill all processes, wait until they exit, and close the streams."""
        self.kill()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._transport.kill()
            await self._process.wait()
        finally:
            self._transport.close()
            # before Python 3.11.4, asyncio logs an error about unread input unless this is awaited
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    await self.writer.wait_closed()

    async def describe_end(self) -> str:
        """Return bubblewrap's output on stderr, or its exit code if there is no output."""
        stderr = b""
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                stderr = await self.stderr.read(_MAX_STDERR)
                await self._process.wait()
        exit_code = "" if self._process.returncode is None else f"exit code {self._process.returncode}"
        return stderr.decode("utf-8", "replace").strip() or exit_code


@contextmanager
def _open_file(file: Path | None) -> Iterator[tuple[int, ...]]:
    """Open a file and yield its descriptor. Every bubblewrap process reads the file and needs its own descriptor."""
    if file is None:
        yield ()
        return
    descriptor = os.open(file, os.O_RDONLY)
    try:
        yield (descriptor,)
    finally:
        os.close(descriptor)


async def complete_or_undo(work: Awaitable[T], undo: Callable[[T], Awaitable[None]]) -> T:
    """Return the result of `work`. On cancellation, let `work` finish and then pass its result to `undo`."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.cancelled():
            await asyncio.shield(_undo(task, undo))
        raise


async def _undo(task: asyncio.Future[T], undo: Callable[[T], Awaitable[None]]) -> None:
    with suppress(SandboxError):  # nothing awaits the result any more
        await undo(await task)


def _find_children(pid: int) -> list[int]:
    """Return the PIDs of a process's children. Returns an empty list if the kernel does not report them."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    except OSError:
        return []


def diagnose(stderr: str) -> str:
    """Suggest a fix for a bubblewrap process that failed with this error output."""
    if "Unknown option" in stderr:
        return "Install bubblewrap 0.7 or later (Debian 12, Ubuntu 23.04), or use Docker."
    if any(words in stderr for words in ("uid map", "RTM_NEWADDR", "not permitted")) and _is_restricted_by_apparmor():
        return (
            "AppArmor forbids user namespaces (Ubuntu's default since 23.10). To allow them for bubblewrap only, put\n"
            f"{_PROFILE}\ninto /etc/apparmor.d/bwrap, then run: sudo apparmor_parser -r /etc/apparmor.d/bwrap"
        )
    if "Can't find source path" in stderr:
        return (
            "If agent runs as root, bubblewrap runs as nobody. "
            "Make the parent folders of that path accessible to everybody."
        )
    if "namespace" in stderr:
        return (
            "This system forbids user namespaces. Run: sudo sysctl -w user.max_user_namespaces=15000 (on old Debian "
            "releases also: sudo sysctl -w kernel.unprivileged_userns_clone=1). "
            "In a container, the engine must allow user namespaces."
        )
    if "/proc" in stderr:
        return "In a container, the engine must leave /proc unmasked (--security-opt systempaths=unconfined)."
    return "To investigate, run: bwrap --unshare-all --ro-bind / / true"


def _is_restricted_by_apparmor() -> bool:
    try:
        text = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").read_text(encoding="ascii")
    except OSError:
        return False
    return text.strip() == "1"
