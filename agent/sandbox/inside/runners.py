"""Runners: programs that run tests in other languages. A runner replaces a child process and reads its job from a pipe.

The supervisor starts a runner before it has a job, because a runner such as Node starts slowly.

This file is prepended to `supervisor.py`, and the constraints of `child.py` apply here as well.
"""

from __future__ import annotations

import os
import select

import _signal as signal  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from agent.sandbox.inside.child import PATH, STREAMS, WORK
    from agent.sandbox.inside.supervisor import ChildRun, Pipe, kill_others, pack, read_inode, send

TOOLCHAINS = "/toolchains"
"""The folder in which a backend mounts the toolchain of each command."""
MFD_CLOEXEC, MFD_EXEC = 1, 16
MAX_PART = 1 << 16


class JobInput:
    """A runner's standard input. The supervisor writes the job while it relays the runner's output."""

    events = select.POLLOUT

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.write_end, False)
        self.remaining = memoryview(b"")

    def relay(self) -> bool | None:
        """Write a part of the job. Returns None at its end, or if the runner has closed its input."""
        try:
            self.remaining = self.remaining[os.write(self.write_end, self.remaining[:MAX_PART]) :]
        except BrokenPipeError:
            self.remaining = self.remaining[:0]
        if self.remaining:
            return True
        self.close()
        return None

    def find_exceeded_limit(self) -> str:
        return ""

    def close(self) -> None:
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1


class Runner:
    """The supervisor's side of a runner that waits for its job."""

    def __init__(self, limits: list[str], pipes: list[Pipe], argv: list[str]) -> None:
        self.path = path = find_command(argv[0])
        self.job = JobInput()
        self.run = ChildRun(limits, pipes, lambda: execute_runner(path, argv))
        self.run.pid = self.run.start_child([*(pipe.write_end for pipe in pipes), self.job.read_end])
        os.close(self.job.read_end)

    def run_job(self, timeout: float, fields: list[str]) -> None:
        """Send the job and run it to its end."""
        key, environment, *rest = fields
        inode = read_inode(environment)
        if environment and not inode:
            self.close()
            send(b"g", b"")
            return
        self.job.remaining = memoryview(pack([key, self.path, WORK, environment, *rest]))
        self.run.inputs = {self.job.write_end: self.job}
        self.run.timeout, self.run.environment, self.run.inode = timeout, environment, inode
        self.run.run()
        self.job.close()

    def close(self) -> None:
        """Kill the runner before it has a job."""
        kill_others()
        self.job.close()
        for pipe in self.run.pipes:
            os.close(pipe.read_end)
            os.close(pipe.write_end)


def find_command(name: str) -> str:
    """Return the path of a command in its toolchain or on the PATH, or its name if there is none."""
    folders = [os.path.join(TOOLCHAINS, name), *PATH.split(os.pathsep)]
    paths = [os.path.join(folder, name) for folder in folders]
    return next((path for path in paths if os.access(path, os.X_OK)), name)


def execute_runner(path: str, argv: list[str]) -> NoReturn:
    """Replace this process with a runner whose memory and descriptors its own children cannot open.

    The kernel makes a process undumpable that executes a file which its user cannot read. The file is a copy of the
    dynamic loader, which then loads the runner.
    """
    os.dup2(STREAMS, 0)
    os.close(STREAMS)
    for fd in range(3, STREAMS):
        os.set_inheritable(fd, True)
    for number in (signal.SIGPIPE, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    fd = open_memory_file()
    with open(find_loader(), "rb") as file:
        os.write(fd, file.read())
    os.fchmod(fd, 0o111)
    loader = os.open("/proc/self/fd/%d" % fd, os.O_PATH)
    os.close(fd)
    os.execve(loader, [argv[0], path, *argv[1:]], os.environ)


def open_memory_file() -> int:
    create: Any = os.memfd_create
    try:
        return int(create("loader", MFD_CLOEXEC | MFD_EXEC))
    except OSError:  # before Linux 6.3, every such file is executable
        return int(create("loader", MFD_CLOEXEC))


def find_loader() -> str:
    """Return the dynamic loader of the C library, glibc or musl."""
    machine = os.uname().machine
    for path in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-%s.so.1" % machine, "/lib/ld-musl-%s.so.1" % machine):
        if os.path.exists(path):
            return path
    raise ValueError("there is no dynamic loader for " + machine)
