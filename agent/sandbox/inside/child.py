"""What the first process of a sandbox does in a child of its own: gives up its rights and becomes the program.

Joined before `supervisor.py` and never imported. Works on Python 3.8 and later. A pair pays for every import, so there
are few: `signal` alone would cost as much as all.

A run with the option `hash_seed` begins anew in its child, as an interpreter that hashes with that seed.
"""

from __future__ import annotations

import sys

del sys.path[0]  # of the script, or the working folder: nothing is imported from there

import os

import _signal as signal  # type: ignore[import-not-found]
import resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, NoReturn

MAX_FIELD = 8 << 10
STREAMS = 5
"""Standard streams, report and stack: the descriptors of a child."""
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
    """What a harness is given."""

    def __init__(self, program: str, cases: list[str], options: dict[str, str], environment_path: str | None) -> None:
        self.program = program
        self.cases = cases
        self.options = options
        self.environment_path = environment_path
        self.work = WORK


def prctl(option: int, value: int) -> bool:
    """Set a property of this process; False where the interpreter was built without the means."""
    try:
        import _ctypes  # ctypes itself takes as long to import as all the rest here
    except ImportError:
        return False
    calls: Any = _ctypes
    function = calls.dlsym(calls.dlopen(None, 0), "prctl")
    return bool(calls.call_function(function, (option, value, 0, 0, 0)) == 0)


def lower(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def take_streams(ends: list[int]) -> None:
    """Make these the streams of this process, from standard output on; a single one is standard error as well."""
    null = os.open("/dev/null", os.O_RDWR)
    ends = [null] + ends + (ends if len(ends) == 1 else [])
    # above all targets first, so that no copy overwrites an end that is still needed
    high = [os.dup2(fd, 100 + index) for index, fd in enumerate(ends)]
    for index, fd in enumerate(high):
        os.dup2(fd, index, inheritable=index <= 2)
    os.closerange(len(high), 4096)


def give_up_rights(memory: int, files: int, open_files: int, processes: int) -> None:
    prctl(PR_SET_DUMPABLE, 1)  # else its own /proc entries belong to root
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass
    lower(resource.RLIMIT_CORE, 0)
    # a little less than the sandbox may use: one process that asks for too much gets a MemoryError
    lower(resource.RLIMIT_DATA, memory // 16 * 15)
    lower(resource.RLIMIT_FSIZE, files)
    lower(resource.RLIMIT_NOFILE, open_files)
    if processes:
        lower(resource.RLIMIT_NPROC, processes)
    if UID is not None and GID is not None:
        os.setgroups([])
        os.setresgid(GID, GID, GID)
        os.setresuid(UID, UID, UID)
        prctl(PR_SET_DUMPABLE, 1)
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def run_harness(job: HarnessJob, nonce: str) -> NoReturn:
    seed = job.options.get("hash_seed", "")
    if seed and seed != ENVIRONMENT["PYTHONHASHSEED"]:
        start_again(job, nonce, seed)
    import builtins
    import faulthandler
    import types

    leave = os._exit
    sys.stdin = open(0, encoding="utf-8", errors="replace")
    sys.stdout = stdout = open(1, "w", encoding="utf-8", errors="backslashreplace")
    sys.stderr = stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)
    sys.argv = ["program.py"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    extend_path(job)
    emit = reporter(nonce)
    # with built-ins of its own: what a program puts in place of the real ones changes nothing here
    space = {"__name__": "harness", "__builtins__": dict(vars(builtins))}
    exec(HARNESS, space)
    main: Any = space["main"]
    writer: Any = space.get("stack_writer")
    if writer is not None:
        signal.signal(signal.SIGUSR1, writer(STREAMS - 1))
    faulthandler.register(signal.SIGUSR1, file=STREAMS - 1, all_threads=False, chain=writer is not None)
    main(job, emit)
    for stream in (stdout, stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    emit("end")
    leave(0)


def load(path: str) -> Any:
    """Return the code in a file of bytecode."""
    import marshal

    with open(path, "rb") as file:
        return marshal.loads(file.read()[16:])


def extend_path(job: HarnessJob) -> None:
    """Let programs import, behind the standard library: their environment, and then the image's packages.

    Their own files come last, and the harness adds them: when it has imported what it needs.
    """
    import site

    standard = len(sys.path)
    if job.options.get("site") == "1":
        site.main()  # imports sitecustomize, which may not be one of the environment's
    else:
        site.setquit()
        site.sethelper()
    if job.environment_path:
        sys.path.insert(standard, job.environment_path)


def reporter(nonce: str) -> Callable[..., None]:
    """Return the function that writes records; it holds all that it uses, whatever a program changes meanwhile."""
    write, getpid, leave, encode, join, length = os.write, os.getpid, os._exit, str.encode, b"".join, len
    owner, signature = getpid(), encode(nonce)

    def emit(
        kind: str,
        name: str = "",
        outcome: str = "",
        error_type: str = "",
        message: str = "",
        frames: Iterable[tuple[str, int, str]] = (),
    ) -> None:
        if getpid() != owner:
            leave(1)  # a copy that the program forked has come back: one report is enough
        texts = [kind, name, outcome, error_type, message]
        for file, line, function in frames:
            texts += [file, "%d" % line, function]
        fields = [signature] + [encode(text, "utf-8", "surrogatepass")[:MAX_FIELD] for text in texts]
        record = join([length(field).to_bytes(4, "big") + field for field in fields])
        data = length(record).to_bytes(4, "big") + record
        while data:
            data = data[write(3, data) :]

    return emit


def start_again(job: HarnessJob, nonce: str, seed: str) -> NoReturn:
    """Become a fresh interpreter that hashes with another seed, and run the harness there."""
    import marshal

    with open("/proc/self/cmdline", "rb") as file:
        own = file.read().split(b"\0")[:-1]
    kept = os.memfd_create("run")
    with open(kept, "wb", closefd=False) as file:
        marshal.dump((seed, nonce, job.program, job.cases, job.options, job.environment_path, HARNESS), file)
    os.lseek(kept, 0, os.SEEK_SET)
    for fd in (3, 4, kept):
        os.set_inheritable(fd, True)
    os.execve(sys.executable, [*own, b"%d" % kept], {**os.environ, "PYTHONHASHSEED": seed})


def go_on(kept: int) -> NoReturn:
    """Do what `start_again` was for."""
    import marshal

    global HARNESS
    for fd in (3, 4):
        os.set_inheritable(fd, False)
    with open(kept, "rb") as file:
        seed, nonce, program, cases, options, environment, HARNESS = marshal.load(file)
    ENVIRONMENT["PYTHONHASHSEED"] = seed
    run_harness(HarnessJob(program, cases, options, environment), nonce)


def execute(argv: list[str]) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except (OSError, ValueError, IndexError) as error:
        os.write(2, ("%s: %s\n" % (argv[:1], error)).encode("utf-8", "replace"))
    os._exit(127)
