"""The trusted first process of a sandbox: runs programs in children of its own and outlives them all.

Started as `python3 -S -s -c SOURCE UID GID WORK` with PID 1 in its own pid namespace and an environment of the
backend's choice (isolated mode would ignore PYTHONHASHSEED, and children are forked, so they hash as it does). Reads
requests on standard input until it ends and answers on standard output. A frame is a type byte, a length (4 bytes, big
endian) and a payload of fields, each with a length of its own. Needs nothing but the standard library, and imports
little of it: a pair pays for every import.

Requests: `R` runs a program through a harness, `C` runs a command. Answers: `h` ready; `o`, `e` output and errors, `r`
the harness's report, `t` the stack at a time-out; `x` how it ended.
"""

import sys

sys.path[:] = [folder for folder in sys.path if folder]

import os
import time

import _ctypes
import _signal as signal  # type: ignore[import-not-found]
import resource
import select

MAX_REQUEST = 64 << 20
REPORT_CAP = 1 << 20
TRACE_CAP = 16 << 10
TRACE_SECONDS = 0.1
CHUNK = 1 << 16
PR_SET_DUMPABLE = 4
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MPLBACKEND": "Agg",
}


def pack(fields):
    parts = []
    for field in fields:
        data = field if isinstance(field, bytes) else str(field).encode("utf-8", "surrogatepass")
        parts.append(len(data).to_bytes(4, "big"))
        parts.append(data)
    return b"".join(parts)


def unpack(payload):
    fields, at = [], 0
    while at < len(payload):
        size = int.from_bytes(payload[at : at + 4], "big")
        fields.append(payload[at + 4 : at + 4 + size].decode("utf-8", "surrogatepass"))
        at += 4 + size
    return fields


def send(kind, payload):
    data = kind + len(payload).to_bytes(4, "big") + payload
    while data:
        data = data[os.write(1, data) :]


def receive():
    header = read_exactly(5)
    size = int.from_bytes(header[1:], "big")
    if size > MAX_REQUEST:
        sys.exit("supervisor: a request is too large")
    return header[:1], unpack(read_exactly(size))


def read_exactly(size):
    parts = []
    while size:
        part = os.read(0, min(size, 1 << 20))
        if not part:
            end()
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def end():
    sweep()
    os._exit(0)


def sweep():
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


def oom_kills():
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

    def __init__(self, kind, cap):
        self.kind = kind
        self.left = cap
        self.over = False
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)

    def relay(self):
        """Pass on what is there; return False at the end of the stream."""
        try:
            data = os.read(self.read_end, CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        if len(data) > self.left:
            self.over = True
            data = data[: self.left]
        self.left -= len(data)
        if data:
            send(self.kind, data)
        return True


class Run:
    """One child from fork to its last output."""

    def __init__(self, limits, pipes, body):
        self.timeout, self.memory, self.files, self.open_files, self.processes = limits
        self.pipes = pipes
        self.body = body
        self.status = None
        self.timed_out = False

    def go(self):
        started, kills = time.monotonic(), oom_kills()
        self.pid = os.fork()
        if self.pid == 0:
            self.child()
        for pipe in self.pipes:
            os.close(pipe.write_end)
        self.watch(started + self.timeout)
        sweep()
        limit = ""
        if self.status is not None and os.WIFSIGNALED(self.status) and oom_kills() > kills:
            limit = "memory"
        for pipe in self.pipes:
            while pipe.relay() and self.more(pipe):
                pass
            os.close(pipe.read_end)
            if pipe.kind == b"r" and pipe.over:
                limit = "report"
        self.finish(limit, time.monotonic() - started)

    def more(self, pipe):
        return bool(select.select([pipe.read_end], [], [], 0)[0])

    def finish(self, limit, seconds):
        code = number = ""
        if self.status is not None and os.WIFEXITED(self.status):
            code = os.WEXITSTATUS(self.status)
        elif self.status is not None:
            number = os.WTERMSIG(self.status)
        truncated = any(pipe.over for pipe in self.pipes if pipe.kind in b"oe")
        send(b"x", pack([code, number, int(self.timed_out), limit, int(truncated), "%.6f" % seconds]))

    def watch(self, deadline):
        poll = select.poll()
        poll.register(0, select.POLLIN | select.POLLHUP)
        poll.register(WAKE, select.POLLIN)
        by_fd = {pipe.read_end: pipe for pipe in self.pipes}
        for fd in by_fd:
            poll.register(fd, select.POLLIN)
        while True:
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
                    end()
                elif fd == WAKE:
                    os.read(WAKE, 4096)
                elif not by_fd[fd].relay():
                    poll.unregister(fd)
            if self.reap():
                return

    def reap(self):
        """Collect what has ended; return whether the child has."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self.pid:
                # at a time-out the signal for the stack may end a child that took its handler away
                self.status = status
                return True

    def child(self):
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            null = os.open("/dev/null", os.O_RDWR)
            targets = [null] + [pipe.write_end for pipe in self.pipes]
            # above all targets first, so that no copy overwrites an end that is still needed
            high = [os.dup2(fd, 100 + index) for index, fd in enumerate(targets)]
            if len(high) == 2:
                high.append(high[1])
            for index, fd in enumerate(high):
                os.dup2(fd, index)
            os.closerange(len(high), 4096)
            self.limit()
            os.chdir(WORK)
            os.umask(0o022)
            os.environ.clear()
            os.environ.update(ENVIRONMENT)
            self.body()
        except BaseException as error:
            os.write(2, ("%s: %s\n" % (type(error).__name__, error)).encode("utf-8", "replace"))
        os._exit(70)

    def limit(self):
        try:
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")
        except OSError:
            pass
        lower(resource.RLIMIT_CORE, 0)
        lower(resource.RLIMIT_DATA, self.memory)
        lower(resource.RLIMIT_FSIZE, self.files)
        lower(resource.RLIMIT_NOFILE, self.open_files)
        if self.processes:
            lower(resource.RLIMIT_NPROC, self.processes)
        if UID is not None:
            os.setgroups([])
            os.setresgid(GID, GID, GID)
            os.setresuid(UID, UID, UID)


def lower(kind, value):
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


class Job:
    """What a harness is given."""

    def __init__(self, program, cases, options, environment_path):
        self.program = program
        self.cases = cases
        self.options = options
        self.environment_path = environment_path


def run_program(fields):
    limits, fields = read_limits(fields)
    output, nonce, environment, harness, program, cases = fields[:6]
    cases = fields[6 : 6 + int(cases)]
    rest = fields[6 + len(cases) :]
    job = Job(program, cases, dict(zip(rest[::2], rest[1::2])), environment or None)
    pipes = [Pipe(b"o", int(output)), Pipe(b"e", int(output)), Pipe(b"r", REPORT_CAP), Pipe(b"t", TRACE_CAP)]
    Run(limits, pipes, lambda: run_harness(harness, job, nonce)).go()


def run_harness(harness, job, nonce):
    import faulthandler

    def emit(kind, name="", outcome="", error_type="", message="", frames=()):
        flat = [part for frame in frames for part in frame]
        record = pack([nonce, kind, name, outcome, error_type, message] + flat)
        data = len(record).to_bytes(4, "big") + record
        while data:
            data = data[write(3, data) :]

    write, leave = os.write, os._exit
    faulthandler.register(signal.SIGUSR1, file=4, all_threads=False)
    sys.stdin = open(0, encoding="utf-8", errors="replace")
    sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace")
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)
    streams = (sys.stdout, sys.stderr)
    sys.argv = ["program.py"]
    if job.options.get("site") == "1":
        import site

        site.main()
    if job.environment_path:
        sys.path.insert(0, job.environment_path)
    sys.path.append(os.getcwd())
    space = {"__name__": "harness"}
    exec(compile(harness, "harness.py", "exec", dont_inherit=True), space)
    space["main"](job, emit)
    for stream in streams:
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    emit("end")
    leave(0)


def run_command(fields):
    limits, fields = read_limits(fields)
    pipes = [Pipe(b"o", int(fields[0]))]
    argv = fields[1:]

    def body():
        for name in (signal.SIGPIPE, signal.SIGINT):
            signal.signal(name, signal.SIG_DFL)
        os.execvp(argv[0], argv)

    Run(limits, pipes, body).go()


def read_limits(fields):
    return (float(fields[0]), *map(int, fields[1:5])), fields[5:]


def prepare():
    """Make this process one that what it runs can neither signal nor look into."""
    if os.getpid() != 1:
        sys.exit("supervisor: must be the first process of its own pid namespace")
    if UID is None:
        # as one and the same user, a child could open this process's memory and streams
        prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")
        if _ctypes.call_function(prctl, (PR_SET_DUMPABLE, 0, 0, 0, 0)) != 0:
            sys.exit("supervisor: cannot make itself undumpable")
    read_end, write_end = os.pipe()
    for fd in (read_end, write_end):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    return read_end


UID, GID = (int(part) if part else None for part in sys.argv[1:3])
WORK = sys.argv[3]
WAKE = prepare()
send(b"h", pack([1, "%d.%d.%d" % sys.version_info[:3]]))
while True:
    kind, fields = receive()
    if kind == b"R":
        run_program(fields)
    elif kind == b"C":
        run_command(fields)
    else:
        sys.exit("supervisor: unknown request")
