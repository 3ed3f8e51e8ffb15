"""A fork server: a child process that imports the tested module once and then forks a process per run.

A run starts as if its process had just imported the module. Runs can kill or stop the fork server, but not change it:
it is undumpable, it blocks all signals, and its forks close their copies of its connection with the supervisor. Before
each run, the fork server removes the files of earlier runs. It exits if anything else has changed. The supervisor's
client then runs the program in a fresh process in another sandbox.

This file is prepended to `supervisor.py`, and the constraints of `child.py` apply here as well.
"""

from __future__ import annotations

import os
import select
import sys
import time

import _signal as signal  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from agent.sandbox.inside.child import (
        PR_SET_DUMPABLE,
        STREAMS,
        WORK,
        HarnessJob,
        call_c,
        enter_harness,
        make_reporter,
        prctl,
    )
    from agent.sandbox.inside.supervisor import ChildRun

CONTROL = STREAMS
"""The descriptor of a fork server's connection with the supervisor."""
READY, RUN = b"+", b"r"
FORK_SECONDS = 5.0
"""How long a fork server may take to fork, and its forks to die."""
MAX_MESSAGE = 400
NONCE_LENGTH = 32
FOLDERS = (WORK, "/tmp", "/dev/shm")
"""The writable folders."""
LISTS = ("/proc/sysvipc/msg", "/proc/sysvipc/sem", "/proc/sysvipc/shm")
"""Lists of objects that outlive processes."""
SOCKETS = "/proc/net/sockstat"
"""Counts sockets. After a connection, its port cannot be used again for some time. Listing the sockets is slow."""
MAX_FILES = 1000
NO_THREADS = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Variables that keep packages from starting a thread when they are imported (pandas imports pyarrow)."""
HARMLESS = {signal.SIGCHLD, signal.SIGCONT}
"""Signals that a fork server receives in normal operation."""


class Forks:
    """The supervisor's side of a fork server. `identity` contains everything that its runs have in common.

    `message` is the next run's nonce, followed by 1 for a sentinel run. `earlier_seconds` is the duration of the import
    if an earlier run has waited for it.
    """

    message = b""
    earlier_seconds = seconds = 0.0
    pid = 0

    def __init__(self, identity: list[str]) -> None:
        import _socket

        self.identity = identity
        self.channel: Any
        self.channel, self.child_end = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        self.channel.setblocking(False)

    def start(self, run: ChildRun, ends: list[int], deadline: float) -> str:
        """Import the module, and start a run with these descriptors. Returns the reason if this is not possible."""
        self.earlier_seconds, start = self.seconds, time.monotonic()
        if self.pid == 0:
            null = os.open("/dev/null", os.O_RDWR)
            self.pid = run.pid = run.start_child([*ends[:2], null, null, self.child_end.fileno()])
            self.child_end.close()
            os.close(null)
            message = self.wait(run, deadline)
            if message != READY:
                return message.decode("utf-8", "replace") or "the import of the module did not end"
            if list_processes({1, self.pid}):
                return "the import of the module left a process"
            self.seconds = time.monotonic() - start
        try:
            self.start_fork(run, ends)
        except (OSError, ValueError):
            return "the fork server has exited: an earlier run changed something that runs share, or killed it"
        return ""

    def start_fork(self, run: ChildRun, ends: list[int]) -> None:
        import _socket

        read_end, write_end = os.pipe()
        rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in [read_end, *ends])
        try:
            self.channel.sendmsg([RUN], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
            run.pid = self.pid
            run.pid = int(self.wait(run, time.monotonic() + FORK_SECONDS))
            if run.pid <= 1 or run.status is not None:
                raise ValueError("the fork server has exited")
            os.kill(run.pid, 0)
            os.write(write_end, self.message)
        finally:
            os.close(read_end)
            os.close(write_end)

    def wait(self, run: ChildRun, deadline: float) -> bytes:
        """Return the next message of the fork server, or b"" if there is none."""
        run.watch(deadline, self.channel.fileno())
        try:
            message: bytes = self.channel.recv(MAX_MESSAGE)
        except OSError:
            return b""
        return message

    def kill_runs(self) -> bool:
        """Kill every other process except the fork server. Returns whether the fork server is still alive.

        A stopped process cannot fork, but a process that is not stopped yet can continue another one.
        """
        deadline = time.monotonic() + FORK_SECONDS
        while time.monotonic() < deadline:
            kill(-1, signal.SIGSTOP)
            others = list_processes({1, self.pid})
            if not others:
                kill(self.pid, signal.SIGCONT)
                # another process could have the PID of a fork server that was killed
                return not select.select([self.channel], [], [], 0)[0]
            for pid in others:
                kill(pid, signal.SIGKILL)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return False
            time.sleep(0.0002)
        return False


def kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass


def list_processes(excluded: set[int]) -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in excluded]


class NotForkable(Exception):
    """Forks of this process would differ from a fresh process."""


class ForkServer:
    """A process that has imported a module. Raises `NotForkable` if its forks would share something."""

    def __init__(self, job: HarnessJob, secret: str) -> None:
        import _socket
        import random

        self.channel: Any = _socket.socket(fileno=CONTROL)
        harness, self.flush = enter_harness(job)
        self.emit, self.start_report = make_reporter(secret)
        before, state, self.seed = describe_process(), random.getstate(), random.seed
        os.environ.update(NO_THREADS)
        self.run: Any = harness["prepare_forks"](job)
        for name in NO_THREADS:
            os.environ.pop(name, None)
        self.flush()
        after = describe_process()
        for name, value in before.items():
            if value != after[name]:
                raise NotForkable("the import of the module left " + name)
        if list_files():
            raise NotForkable("the sandbox contains files")
        if random.getstate() != state:
            raise NotForkable("the import of the module used or seeded the random module")
        self.state = read_state()
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        if not prctl(PR_SET_DUMPABLE, 0):
            raise NotForkable("this process cannot be made undumpable")

    def serve(self) -> NoReturn:
        """Fork a process for each message with descriptors, until the connection ends or something has changed."""
        while True:
            data, ancillary, _, _ = self.channel.recvmsg(1, 256)
            if data != RUN or not self.clean():
                os._exit(0)
            fds = memoryview(ancillary[0][2]).cast("i").tolist()
            self.channel.send(self.fork(fds))
            for fd in fds:
                os.close(fd)

    def fork(self, fds: list[int]) -> bytes:
        """Fork a process whose parent exits, so that the supervisor becomes its parent. Returns its PID.

        The functions that the module has passed to `os.register_at_fork` are not called, as in a fresh process.
        """
        read_end, write_end = os.pipe()
        middle = call_c("fork")
        if middle == 0:
            try:
                pid = call_c("fork")
                if pid == 0:
                    self.become_run(fds)
                os.write(write_end, b"%d" % pid)
            finally:
                os._exit(0)
        os.close(write_end)
        os.waitpid(middle, 0)
        pid_text = os.read(read_end, 20)
        os.close(read_end)
        return pid_text

    def become_run(self, fds: list[int]) -> NoReturn:
        exit_process = os._exit
        try:
            self.channel.detach()
            message = os.read(fds[0], NONCE_LENGTH + 1)
            if len(message) <= NONCE_LENGTH:
                exit_process(70)
            for number, fd in enumerate([os.open("/dev/null", os.O_RDWR), *fds[1:]]):
                os.dup2(fd, number, inheritable=number <= 2)
            os.closerange(STREAMS, 4096)
            os.setsid()
            prctl(PR_SET_DUMPABLE, 1)
            self.seed_generators()
            self.start_report(message[:NONCE_LENGTH])
            signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
            self.run(self.emit, message[NONCE_LENGTH:] == b"1")
            self.flush()
            self.emit("end")
            exit_process(0)
        except BaseException as error:
            os.write(2, ("%s: %s\n" % (type(error).__name__, error)).encode("utf-8", "replace"))
        exit_process(70)

    def seed_generators(self) -> None:
        """Give this fork its own random numbers. If the module has seeded numpy, that seed stays valid."""
        self.seed()
        numpy: Any = sys.modules.get("numpy.random.mtrand")
        generator = getattr(getattr(numpy, "_rand", None), "_bit_generator", None)
        # numpy has no seed sequence after an explicit seed
        if getattr(generator, "seed_seq", getattr(generator, "_seed_seq", None)) is not None:
            numpy._rand.seed()

    def clean(self) -> bool:
        """Remove all files, so that each run has the temporary folder for itself, like a run in a fresh sandbox.

        Returns False if runs have changed anything else, or sent signals to this process. The times and the extended
        attributes of the writable folders are not compared.
        """
        for path in reversed(list_files()):
            try:
                os.unlink(path)
            except IsADirectoryError:
                os.rmdir(path)
        return not list_files() and read_state() == self.state and signal.sigpending() <= HARMLESS


def describe_process() -> dict[str, Any]:
    """Return what forks of this process would share or lack, and the functions that the fork server calls."""
    fds = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            fds[name] = os.readlink("/proc/self/fd/" + name)
        except OSError:
            continue  # the descriptor that listed the folder
    with open("/proc/self/maps") as file:
        permissions = [(line.split(None, 2)[1], line) for line in file]
    return {
        "a thread": len(os.listdir("/proc/self/task")),
        "an open file": fds,
        "shared memory": [line for text, line in permissions if text[1] == "w" and text[3] == "s"],
        "a timer": [signal.getitimer(number) for number in (0, 1, 2)],
        "changes in the os module": dict(vars(os)),
    }


def list_files() -> list[str]:
    """Return the files and folders in the writable folders, each folder before its files."""
    found: list[str] = []
    for folder in FOLDERS:
        pending = [folder]
        while pending and len(found) < MAX_FILES:
            entries = [*os.scandir(pending.pop())]
            found += [entry.path for entry in entries]
            pending += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    return found


def read_state() -> list[Any]:
    """Return what runs could leave outside the writable folders."""
    state: list[Any] = [os.stat(folder).st_mode for folder in FOLDERS]
    for path in LISTS:
        with open(path) as file:
            state.append(file.read())
    with open(SOCKETS) as file:
        # TCP: inuse 0 orphan 0 tw 0 alloc 0 mem 0, of which the others count the sockets of other sandboxes
        return state + [line.split()[2:7:4] for line in file if line.startswith("TCP:")]


def serve_forks(job: HarnessJob, secret: str) -> NoReturn:
    """Import the job's module, tell the supervisor so, and serve runs. Otherwise, send the reason and exit."""
    try:
        server = ForkServer(job, secret)
    except BaseException as error:
        text = "%s: %s" % (type(error).__name__, error) if not isinstance(error, NotForkable) else str(error)
        os.write(CONTROL, text.encode("utf-8", "replace")[:MAX_MESSAGE])
        os._exit(0)
    for fd in (1, 2):
        os.dup2(STREAMS - 1, fd)
    server.channel.send(READY)
    server.serve()
