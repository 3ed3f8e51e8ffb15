"""The code of the supervisor's child processes, which drop privileges and run a harness or a command.

This file is prepended to `supervisor.py` and never imported. It works on Python 3.8 and later. It imports few modules,
because every import delays each pair. Importing `signal` alone would double the delay.
"""

from __future__ import annotations

import sys

del sys.path[0]  # remove the script's folder or the working folder, which may contain untrusted modules

import os

import _signal as signal  # type: ignore[import-not-found]
import resource
from _blake2 import blake2b  # importing hashlib would load OpenSSL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, NoReturn

MAX_FIELD = 8 << 10
TAG = 16
"""The length of a record's keyed hash, in bytes."""
STREAMS = 5
"""The number of a child's file descriptors: three standard streams, the report and the stacks."""
PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 4, 38
PATH = os.environ.get("PATH") or "/usr/local/bin:/usr/bin:/bin"
ENVIRONMENT = {
    "PATH": PATH,
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MPLBACKEND": "Agg",
}
UID, GID = (int(part) if part else None for part in sys.argv[1:3])
WORK = sys.argv[3]
HARNESS: Any = None


class HarnessJob:
    """The job that a harness runs."""

    def __init__(self, program: str, cases: list[str], options: dict[str, str], environment_path: str | None) -> None:
        self.program = program
        self.cases = cases
        self.options = options
        self.environment_path = environment_path
        self.work = WORK


def call_c(name: str, *values: int) -> int:
    """Call a C function. Returns -1 if the interpreter was built without `_ctypes`."""
    try:
        import _ctypes  # importing ctypes takes as long as all other imports together
    except ImportError:
        return -1
    calls: Any = _ctypes
    return int(calls.call_function(calls.dlsym(calls.dlopen(None, 0), name), values))


def prctl(option: int, value: int) -> bool:
    """Call prctl(2). Returns False on failure."""
    return call_c("prctl", option, value, 0, 0, 0) == 0


def lower_limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def set_streams(ends: list[int]) -> None:
    """Make `ends` this process's descriptors, starting with standard output.

    If there is only one end, it also serves as standard error.
    """
    null = os.open("/dev/null", os.O_RDWR)
    ends = [null] + ends + (ends if len(ends) == 1 else [])
    # copy all ends to high numbers first, so that no copy overwrites an end that is still needed
    high = [os.dup2(fd, 100 + index) for index, fd in enumerate(ends)]
    for index, fd in enumerate(high):
        os.dup2(fd, index, inheritable=index <= 2)
    os.closerange(len(high), 4096)


def drop_privileges(memory: int, files: int, open_files: int, processes: int) -> None:
    prctl(PR_SET_DUMPABLE, 1)  # otherwise, root would own this process's /proc entries
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass
    lower_limit(resource.RLIMIT_CORE, 0)
    # slightly lower than the sandbox's limit, so that a single greedy process gets a MemoryError
    lower_limit(resource.RLIMIT_DATA, memory // 16 * 15)
    lower_limit(resource.RLIMIT_FSIZE, files)
    lower_limit(resource.RLIMIT_NOFILE, open_files)
    lower_limit(resource.RLIMIT_MSGQUEUE, 0)  # POSIX message queues outlive processes
    if processes:
        lower_limit(resource.RLIMIT_NPROC, processes)
    if UID is not None and GID is not None:
        os.setgroups([])
        os.setresgid(GID, GID, GID)
        os.setresuid(UID, UID, UID)
        prctl(PR_SET_DUMPABLE, 1)
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def enter_harness(job: HarnessJob) -> tuple[dict[str, Any], Callable[[], None]]:
    """Prepare this process for a harness. Returns the harness's namespace, and a function that flushes the streams."""
    import builtins
    import faulthandler
    import types

    sys.stdin = open(0, encoding="utf-8", errors="replace")
    sys.stdout = stdout = open(1, "w", encoding="utf-8", errors="backslashreplace")
    sys.stderr = stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)
    sys.argv = ["program.py"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    extend_path(job)
    # the harness gets a copy of the built-ins, because a program may replace them
    namespace = {"__name__": "harness", "__builtins__": dict(vars(builtins))}
    exec(HARNESS, namespace)
    writer: Any = namespace.get("make_stack_writer")
    if writer is not None:
        signal.signal(signal.SIGUSR1, writer(STREAMS - 1))
    faulthandler.register(signal.SIGUSR1, file=STREAMS - 1, all_threads=False, chain=writer is not None)

    def flush() -> None:
        for stream in (stdout, stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                pass

    return namespace, flush


def run_harness(job: HarnessJob, secret: str, nonce: str) -> NoReturn:
    exit_process = os._exit
    namespace, flush = enter_harness(job)
    emit, start_report = make_reporter(secret)
    start_report(nonce.encode())
    main: Any = namespace["main"]
    main(job, emit)
    flush()
    emit("end")
    exit_process(0)


def load(path: str) -> Any:
    """Return the code object in a bytecode file."""
    import marshal

    with open(path, "rb") as file:
        return marshal.loads(file.read()[16:])


def extend_path(job: HarnessJob) -> None:
    """Add the program's environment and then the image's packages to `sys.path`, after the standard library.

    The harness appends the program's folder after its own imports. The PYTHONPATH variable makes the same packages
    available to the interpreters that the program starts.
    """
    import site

    standard = len(sys.path)
    if job.options.get("site") == "1":
        site.main()  # imports sitecustomize, which must not come from the environment
    else:
        site.setquit()
        site.sethelper()
    if job.environment_path:
        sys.path.insert(standard, job.environment_path)
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[standard:])


def make_reporter(secret: str) -> tuple[Callable[..., None], Callable[[bytes], None]]:
    """Return the function that writes records, and the function that starts this process's report with a nonce.

    They do not look up names in modules, which a program may change. Each record starts with a keyed hash of its number
    and content, so a program that intercepts the records can neither forge nor replay, reorder or drop them. The hash's
    key is derived from the secret and the nonce.
    """
    write, getpid, exit_process, encode, join, length = os.write, os.getpid, os._exit, str.encode, b"".join, len
    owner, key, sign, number = 0, encode(secret), blake2b, 0

    def start_report(nonce: bytes) -> None:
        nonlocal owner, key
        owner, key = getpid(), sign(nonce, key=key).digest()

    def emit(
        kind: str,
        name: str = "",
        outcome: str = "",
        error_type: str = "",
        message: str = "",
        frames: Iterable[tuple[str, int, str]] = (),
    ) -> None:
        nonlocal number
        if getpid() != owner:
            exit_process(1)  # a fork of the program returned to the harness, but only the original process may report
        texts = [kind, name, outcome, error_type, message]
        for file, line, function in frames:
            texts += [file, "%d" % line, function]
        fields = [encode(text, "utf-8", "surrogatepass")[:MAX_FIELD] for text in texts]
        content = join([length(field).to_bytes(4, "big") + field for field in fields])
        tag = sign(number.to_bytes(8, "big") + content, digest_size=TAG, key=key).digest()
        data = (TAG + length(content)).to_bytes(4, "big") + tag + content
        number += 1
        while data:
            data = data[write(3, data) :]

    return emit, start_report


def execute(argv: list[str]) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except (OSError, ValueError, IndexError) as error:
        os.write(2, ("%s: %s\n" % (argv[:1], error)).encode("utf-8", "replace"))
    os._exit(127)
