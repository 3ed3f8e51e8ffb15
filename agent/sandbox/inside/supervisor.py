"""The trusted first process of a sandbox: runs programs in children of its own and outlives them all.

Started as `python3 -S -s -B -c SOURCE UID GID WORK` with PID 1 in its own pid namespace and an environment of the
backend's choice (isolated mode would ignore PYTHONHASHSEED, and children are forked, so they hash as it does). Reads
requests on standard input until it ends, also while something runs, and answers on standard output. A frame is a type
byte, a length (4 bytes, big endian) and a payload of fields, each behind a length of its own.

Requests: `P` loads a harness, `R` runs a program through it, `C` runs a command. Answers: `h` ready; `p` loaded; `o`,
`e` output and errors, `r` the harness's report, `t` the stacks at a time-out; `x` how it ended, or in its place `g`:
the environment it was to have is not there, or did not last until the end.

What a child does stands in `child.py`, which is joined before this; what is said of it holds here as well.
"""

from __future__ import annotations

import os
import select
import sys
import time

import _signal as signal  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, NoReturn

    from agent.sandbox.inside.child import (
        ENVIRONMENT,
        PR_SET_DUMPABLE,
        UID,
        WORK,
        HarnessJob,
        execute,
        give_up_rights,
        go_on,
        load,
        prctl,
        run_harness,
        take_streams,
    )

MAX_REQUEST = 64 << 20
REPORT_CAP = 1 << 20
TRACE_CAP = 64 << 10
TRACE_SECONDS = 0.3
FLOOD = 16 << 20
CHUNK = 1 << 16


def pack(fields: Iterable[str]) -> bytes:
    encoded = [field.encode("utf-8", "surrogatepass") for field in fields]
    return b"".join(len(data).to_bytes(4, "big") + data for data in encoded)


def unpack(payload: bytes) -> list[str]:
    fields, at = [], 0
    while at < len(payload):
        size = int.from_bytes(payload[at : at + 4], "big")
        fields.append(payload[at + 4 : at + 4 + size].decode("utf-8", "surrogatepass"))
        at += 4 + size
    return fields


def send(kind: bytes, payload: bytes) -> None:
    data = kind + len(payload).to_bytes(4, "big") + payload
    while data:
        data = data[os.write(1, data) :]


def receive() -> tuple[bytes, list[str]]:
    header = read_exactly(5)
    size = int.from_bytes(header[1:], "big")
    if size > MAX_REQUEST:
        sys.exit("supervisor: a request is too large")
    return header[:1], unpack(read_exactly(size))


def read_exactly(size: int) -> bytes:
    parts = []
    while size:
        part = os.read(0, min(size, 1 << 20))
        if not part:
            os._exit(0)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def sweep() -> None:
    """End every other process. Each is a child of this one, or becomes one when its parent has died."""
    while True:
        try:
            os.kill(-1, signal.SIGKILL)
        except OSError:
            pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def oom_kills() -> int:
    """Return how often the kernel killed for lack of memory in this control group (0 where it cannot be read)."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        try:
            with open(path) as file:
                for line in file:
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        except OSError:
            continue
    return 0


class Pipe:
    """One stream of a child, relayed up to a cap and then thrown away."""

    def __init__(self, kind: bytes, cap: int) -> None:
        self.kind = kind
        self.cap = cap
        self.total = 0
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)

    def relay(self) -> bool | None:
        """Pass on what is there; False when there is nothing, None at the end of the stream."""
        try:
            data = os.read(self.read_end, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            return None
        kept = data[: max(0, self.cap - self.total)]
        self.total += len(data)
        if kept:
            send(self.kind, kept)
        return True

    def limit(self) -> str:
        """Return the limit that the stream has broken, or nothing: too much output is cut long before it is one."""
        if self.kind in b"oe":
            return "output" if self.total > max(FLOOD, self.cap) else ""
        return "report" if self.kind == b"r" and self.total > self.cap else ""


class ChildRun:
    """One child from fork to its last output; `body` is what it does."""

    def __init__(self, limits: list[str], pipes: list[Pipe], body: Callable[[], None], environment: str = "") -> None:
        self.environment = environment
        self.inode = inode(environment)
        self.timeout = float(limits[0])
        self.limits = [int(limit) for limit in limits[1:]]
        self.pipes = pipes
        self.body = body
        self.pid = 0
        self.status: int | None = None
        self.timed_out = False

    def go(self) -> None:
        started, kills = time.monotonic(), oom_kills()
        self.pid = os.fork()
        if self.pid == 0:
            self.child()
        for pipe in self.pipes:
            os.close(pipe.write_end)
        self.watch(started + self.timeout)
        seconds = time.monotonic() - started
        sweep()
        for pipe in self.pipes:
            while pipe.relay():
                pass
            os.close(pipe.read_end)
        if inode(self.environment) == self.inode:
            self.finish(oom_kills() > kills, seconds)
        else:
            send(b"g", b"")  # what a program says that lost its modules half-way says nothing about it

    def finish(self, out_of_memory: bool, seconds: float) -> None:
        code = number = ""
        limit = next((limit for limit in (pipe.limit() for pipe in self.pipes) if limit), "")
        if self.status is None or os.WIFSIGNALED(self.status):
            number = str(signal.SIGKILL if self.status is None else os.WTERMSIG(self.status))
            limit = limit or ("memory" if out_of_memory else "")
        else:
            code = str(os.WEXITSTATUS(self.status))
        truncated = any(pipe.total > pipe.cap for pipe in self.pipes if pipe.kind in b"oe")
        send(b"x", pack([code, number, str(int(self.timed_out)), limit, str(int(truncated)), "%.6f" % seconds]))

    def watch(self, deadline: float) -> None:
        """Relay the child's streams until it ends, breaks a limit or has had its time."""
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(WAKE, select.POLLIN)
        by_fd = {pipe.read_end: pipe for pipe in self.pipes}
        for fd in by_fd:
            poll.register(fd, select.POLLIN)
        while not self.reap():
            left = deadline - time.monotonic()
            if left <= 0:
                if self.timed_out:
                    return
                self.timed_out = True
                deadline = time.monotonic() + TRACE_SECONDS
                os.kill(self.pid, signal.SIGUSR1)
                continue
            for fd, _ in poll.poll(left * 1000):
                if fd == 0:
                    os._exit(0)  # the client has gone, or breaks the protocol; the kernel ends the others with this one
                elif fd == WAKE:
                    os.read(WAKE, 4096)
                elif by_fd[fd].relay() is None:
                    poll.unregister(fd)
                elif by_fd[fd].limit():
                    return

    def reap(self) -> bool:
        """Collect what has ended; return whether the child has."""
        while self.status is None:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return False
            if pid == self.pid:
                self.status = status
        return True

    def child(self) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.setsid()
            take_streams([pipe.write_end for pipe in self.pipes])
            give_up_rights(*self.limits)
            os.chdir(WORK)
            os.umask(0o022)
            os.environ.clear()
            os.environ.update(ENVIRONMENT)
            self.body()
        except BaseException as error:
            os.write(2, ("%s: %s\n" % (type(error).__name__, error)).encode("utf-8", "replace"))
        os._exit(70)


def inode(path: str) -> int:
    """Return what distinguishes a folder from another one at its place, 0 where there is none."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def run_program(limits: list[str], fields: list[str]) -> None:
    output, nonce, environment, program, count = fields[:5]
    if environment and not inode(environment):
        send(b"g", b"")
        return
    cases, rest = fields[5 : 5 + int(count)], fields[5 + int(count) :]
    job = HarnessJob(program, cases, dict(zip(rest[::2], rest[1::2])), environment or None)
    caps = {b"o": int(output), b"e": int(output), b"r": REPORT_CAP, b"t": TRACE_CAP}
    ChildRun(limits, [Pipe(kind, cap) for kind, cap in caps.items()], lambda: run_harness(job, nonce), environment).go()


def prepare_harness(compiled: str, source: str) -> None:
    """Load a harness once: its bytecode from a file where there is one, else its source."""
    global HARNESS
    refusal = ""
    try:
        HARNESS = load(compiled) if compiled else compile(source, "harness.py", "exec", dont_inherit=True)
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        refusal = "%s: %s" % (type(error).__name__, error)
    send(b"p", pack([refusal]))


def run_command(limits: list[str], fields: list[str]) -> None:
    output, *argv = fields
    ChildRun(limits, [Pipe(b"o", int(output))], lambda: execute(argv)).go()


def prepare() -> int:
    """Make this process one that what it runs can neither signal nor look into; return the end that says who died."""
    if os.getpid() != 1:
        sys.exit("supervisor: must be the first process of its own pid namespace")
    if UID is None and not prctl(PR_SET_DUMPABLE, 0):
        # as one and the same user, a child could open this process's memory and streams
        sys.exit("supervisor: cannot make itself undumpable: this Python has no _ctypes")
    # the kernel keeps signals from a first process that has no handler for them
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    read_end, write_end = os.pipe()
    for fd in (read_end, write_end):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    return read_end


HARNESS: Any = None
if len(sys.argv) > 4:
    go_on(int(sys.argv[4]))
WAKE = prepare()
send(b"h", b"")
while True:
    kind, fields = receive()
    if kind == b"R":
        run_program(fields[:5], fields[5:])
    elif kind == b"P":
        prepare_harness(*fields)
    elif kind == b"C":
        run_command(fields[:5], fields[5:])
    else:
        sys.exit("supervisor: unknown request")
