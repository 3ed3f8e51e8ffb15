"""The trusted first process of a sandbox, which runs programs in child processes.

The supervisor is started as `python3 -S -s -B -c SOURCE UID GID WORK`, with the environment variables that the backend
sets. It has PID 1 in its own PID namespace. It does not run in isolated mode, because Python then
ignores PYTHONHASHSEED. The variable must take effect, because the children are forked and share the supervisor's hash
seed.

The supervisor reads requests from standard input and writes responses to standard output. It exits when standard input
closes, even during a run. A frame consists of a type byte, a length (4 bytes, big endian) and a payload. The payload
consists of fields, each prefixed with its length.

Types of requests:
    P: load a harness
    R: run a program with the loaded harness
    F: run a program in a fork of a process that has imported its module
    S: start a runner, which waits for a job
    J: run a program with the runner that was started last
    C: run a command

Types of responses:
    h: the supervisor is ready
    p: the harness is loaded, or the reason why it cannot be loaded
    o, e: data from standard output or standard error
    r: data from the harness's report
    t: the stack traces at the time of a timeout
    x: the process has ended
    z: the program must run in a fresh process in another sandbox, with the reason (sent instead of x)
    g: the environment does not exist or was removed during the run (sent instead of x)

`child.py`, `fork_server.py` and `runners.py` are prepended to this file, and the constraints of `child.py` apply here.
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
        drop_privileges,
        load,
        prctl,
        run_harness,
        set_streams,
    )
    from agent.sandbox.inside.fork_server import Forks, kill, serve_forks
    from agent.sandbox.inside.runners import JobInput, Runner

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
    fields, position = [], 0
    while position < len(payload):
        size = int.from_bytes(payload[position : position + 4], "big")
        fields.append(payload[position + 4 : position + 4 + size].decode("utf-8", "surrogatepass"))
        position += 4 + size
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


def kill_others() -> None:
    """Kill every other process. They are children of this process or become its children when their parents exit."""
    while True:
        kill(-1, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def count_oom_kills() -> int:
    """Return how many processes in this control group the kernel killed because memory ran out, or 0 if unknown."""
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
    """One stream of a child. Relays up to `cap` bytes and discards the rest."""

    events = select.POLLIN

    def __init__(self, kind: bytes, cap: int) -> None:
        self.kind = kind
        self.cap = cap
        self.total = 0
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)

    def relay(self) -> bool | None:
        """Relay the available data. Returns False if there is no data, and None at the end of the stream."""
        try:
            data = os.read(self.read_end, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            return None
        relayed = data[: max(0, self.cap - self.total)]
        self.total += len(data)
        if relayed:
            send(self.kind, relayed)
        return True

    def find_exceeded_limit(self) -> str:
        """Return the limit that the stream exceeded, or "". Truncated output below `FLOOD` bytes is not an error."""
        if self.kind in b"oe":
            return "output" if self.total > max(FLOOD, self.cap) else ""
        return "report" if self.kind == b"r" and self.total > self.cap else ""


class ChildRun:
    """One child process, from the fork to its last output. The child process calls `body`.

    With `forks`, it is a fork of the process that calls `body`. `inputs` maps descriptors to what is written to them.
    """

    forks: Forks | None = None

    def __init__(self, limits: list[str], pipes: list[Pipe], body: Callable[[], None], environment: str = "") -> None:
        self.environment = environment
        self.inode = read_inode(environment)
        self.timeout = float(limits[0])
        self.limits = [int(limit) for limit in limits[1:]]
        self.pipes = pipes
        self.inputs: dict[int, JobInput] = {}
        self.body = body
        self.pid = 0
        self.status: int | None = None
        self.timed_out = False

    def run(self) -> None:
        start, kills = time.monotonic(), count_oom_kills()
        deadline = start + self.timeout
        ends = [pipe.write_end for pipe in self.pipes]
        problem = ""
        if self.forks is None:
            self.pid = self.pid or self.start_child(ends)
        else:
            problem = self.forks.start(self, ends, deadline)
            start, deadline = time.monotonic(), deadline - self.forks.earlier_seconds
        for end in ends:
            os.close(end)
        if not problem:
            self.watch(deadline)
        seconds = time.monotonic() - start
        if self.forks is None:
            kill_others()
        elif not self.forks.kill_runs():
            close_forks()
            problem = problem or "the fork server was killed"
        for pipe in self.pipes:
            while pipe.relay():
                pass
            os.close(pipe.read_end)
        if problem:
            send(b"z", pack([problem]))
        elif read_inode(self.environment) == self.inode:
            self.send_exit(count_oom_kills() > kills, seconds)
        else:
            send(b"g", b"")  # the program may have lost modules during the run, so its result is invalid

    def send_exit(self, out_of_memory: bool, seconds: float) -> None:
        code = number = ""
        limit = next((limit for limit in (pipe.find_exceeded_limit() for pipe in self.pipes) if limit), "")
        if self.status is None or os.WIFSIGNALED(self.status):
            number = str(signal.SIGKILL if self.status is None else os.WTERMSIG(self.status))
        else:
            code = str(os.WEXITSTATUS(self.status))
        if out_of_memory and (number or self.forks is not None):
            limit = limit or "memory"
        truncated = any(pipe.total > pipe.cap for pipe in self.pipes if pipe.kind in b"oe")
        send(b"x", pack([code, number, str(int(self.timed_out)), limit, str(int(truncated)), "%.6f" % seconds]))

    def watch(self, deadline: float, control: int = -1) -> None:
        """Relay the child's streams until the child exits, exceeds a limit, times out or writes to `control`."""
        poll = select.poll()
        for fd in {0, WAKE, control} - {-1}:
            poll.register(fd, select.POLLIN)
        by_fd: dict[int, Pipe | JobInput] = {pipe.read_end: pipe for pipe in self.pipes}
        by_fd.update(self.inputs)
        for fd, stream in by_fd.items():
            poll.register(fd, stream.events)
        while not self.collect_children():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                if self.timed_out or control >= 0:
                    return
                self.timed_out = True
                deadline = time.monotonic() + TRACE_SECONDS
                kill(self.pid, signal.SIGUSR1)
                continue
            for fd, _ in poll.poll(remaining * 1000):
                if fd == 0:
                    os._exit(0)  # the client exited or violated the protocol; the kernel kills all other processes
                elif fd == WAKE:
                    os.read(WAKE, 4096)
                elif fd == control:
                    return
                elif by_fd[fd].relay() is None:
                    poll.unregister(fd)
                elif by_fd[fd].find_exceeded_limit():
                    return

    def collect_children(self) -> bool:
        """Reap exited processes. Returns whether the child has exited."""
        while self.status is None:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return False
            if pid == self.pid:
                self.status = status
        return True

    def start_child(self, ends: list[int]) -> int:
        """Fork a child with these descriptors, from standard output on. Returns its PID."""
        pid = os.fork()
        if pid == 0:
            self.become_child(ends)
        return pid

    def become_child(self, ends: list[int]) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.setsid()
            set_streams(ends)
            drop_privileges(*self.limits)
            os.chdir(WORK)
            os.umask(0o022)
            os.environ.clear()
            os.environ.update(ENVIRONMENT)
            self.body()
        except BaseException as error:
            os.write(2, ("%s: %s\n" % (type(error).__name__, error)).encode("utf-8", "replace"))
        os._exit(70)


def read_inode(path: str) -> int:
    """Return a folder's inode number, or 0 if the folder does not exist. A replaced folder has a different number."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def run_program(limits: list[str], fields: list[str], in_fork: bool) -> None:
    global FORKS
    output, secret, nonce, environment, program, count = fields[:6]
    if environment and not read_inode(environment):
        send(b"g", b"")
        return
    cases, rest = fields[6 : 6 + int(count)], fields[6 + int(count) :]
    job = HarnessJob(program, cases, dict(zip(rest[::2], rest[1::2])), environment or None)
    pipes = make_pipes(int(output))
    if not in_fork:
        ChildRun(limits, pipes, lambda: run_harness(job, secret, nonce), environment).run()
        return
    is_sentinel = job.options.pop("sentinel", "0")
    run = ChildRun(limits, pipes, lambda: serve_forks(job, secret), environment)
    identity = [secret, program, environment, str(run.inode), *cases, *map(repr, job.options.items()), *limits[1:]]
    if FORKS is None or FORKS.identity != identity:
        close_forks()
        FORKS = Forks(identity)
    run.forks, FORKS.message = FORKS, (nonce + is_sentinel).encode()
    run.run()


def make_pipes(output: int) -> list[Pipe]:
    caps = {b"o": output, b"e": output, b"r": REPORT_CAP, b"t": TRACE_CAP}
    return [Pipe(kind, cap) for kind, cap in caps.items()]


def close_forks() -> None:
    global FORKS
    if FORKS is not None:
        kill_others()
        FORKS.channel.close()
        FORKS = None


def prepare_harness(compiled: str, source: str) -> None:
    """Load the harness for subsequent runs from the bytecode file `compiled`. If `compiled` is empty, use `source`."""
    global HARNESS
    problem = ""
    try:
        HARNESS = load(compiled) if compiled else compile(source, "harness.py", "exec", dont_inherit=True)
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        problem = "%s: %s" % (type(error).__name__, error)
    send(b"p", pack([problem]))


def run_command(limits: list[str], fields: list[str]) -> None:
    output, *argv = fields
    ChildRun(limits, [Pipe(b"o", int(output))], lambda: execute(argv)).run()


def prepare() -> int:
    """Protect this process from signals and inspection by its children. Returns the wake-up pipe's read end."""
    if os.getpid() != 1:
        sys.exit("supervisor: this process must be the first process of its own PID namespace")
    if UID is None and not prctl(PR_SET_DUMPABLE, 0):
        # a child of the same user could open this process's memory and streams
        sys.exit("supervisor: cannot make this process undumpable because Python was built without _ctypes")
    # the kernel does not deliver signals to a first process that has no handler for them
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    read_end, write_end = os.pipe()
    for fd in (read_end, write_end):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    return read_end


HARNESS: Any = None
FORKS: Forks | None = None
RUNNER: Runner | None = None
WAKE = prepare()
send(b"h", b"")
while True:
    kind, fields = receive()
    if kind != b"F":
        close_forks()
    if kind != b"J" and RUNNER is not None:
        RUNNER.close()
        RUNNER = None
    if kind == b"S":
        RUNNER = Runner(fields[:5], make_pipes(int(fields[5])), fields[6:])
    elif kind == b"J" and RUNNER is not None:
        RUNNER.run_job(float(fields[0]), fields[5:])
        RUNNER = None
    elif kind in (b"R", b"F"):
        run_program(fields[:5], fields[5:], kind == b"F")
    elif kind == b"P":
        prepare_harness(*fields)
    elif kind == b"C":
        run_command(fields[:5], fields[5:])
    else:
        sys.exit("supervisor: unknown request")
