"""Checks, their results, and canaries on the host that detect a successful attack."""

from __future__ import annotations

import json
import os
import secrets
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from agent.sandbox.base import ReportLine, RunResult, Sandbox, SandboxBackend, SandboxJob, SandboxLimits
from agent.sandbox.inside import read_source

_CANARY_TEXT = "unchanged"
_SECRET = "AGENT_SELFCHECK_SECRET"
_STILL_WORKS = """
import os
others = [name for name in os.listdir("/proc") if name.isdecimal() and int(name) not in (1, os.getpid())]
for name in ("/tmp", "/dev/shm"):
    for entry in os.scandir(name):
        if entry.is_file(follow_symlinks=False) or entry.is_symlink(): os.unlink(entry.path)
def read(number):
    try:
        with open(f"/proc/{number}/status") as file: return file.read()
    except OSError: return ""
harness = {line.split()[1] for line in read("self").splitlines() if line.startswith(("PPid:", "Pid:"))}
survivors = [name for name in others if name not in harness and read(name)]
assert not survivors, f"processes that outlived their run: {[read(name).splitlines()[0] for name in survivors]}"
"""


class CheckFailed(Exception):
    """A backend failed a check. The message says what happened."""


class CanaryChanged(CheckFailed):
    """A canary on the host was changed. The message names the canary."""


class CheckVerdict(StrEnum):
    """Outcome of a check."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_ENFORCED = "not enforced"


@dataclass(frozen=True)
class CheckResult:
    """Result of a check. `detail` says why the check failed, or why the limit that it needs cannot be enforced."""

    check: str
    group: str
    verdict: CheckVerdict
    detail: str = ""


@dataclass(frozen=True)
class Canaries:
    """Decoys on the host that reveal an attack: a file in a world-writable folder, a process, a secret, and sockets.

    Programs receive `public_facts`, so they do not have to guess paths, ports and process ids. The facts contain the
    secret only in reverse. If a program finds the secret itself anywhere, the host has leaked it.
    """

    folder: Path
    process: subprocess.Popen[bytes]
    secret: str
    listeners: Mapping[str, socket.socket]

    @property
    def public_facts(self) -> dict[str, object]:
        """The facts about the canaries that programs receive."""
        return {
            "canary": str(self.folder / "canary"),
            "socket": str(self.folder / "socket"),
            "abstract": f"agent-{self.secret[:8]}",
            "pid": self.process.pid,
            "tcp": self.listeners["TCP"].getsockname()[1],
            "udp": self.listeners["UDP"].getsockname()[1],
            "reversed_secret": self.secret[::-1],
        }

    def verify(self) -> None:
        """Verify that every canary is unchanged.

        Raises:
            CanaryChanged: a canary was changed.
        """
        names = sorted(entry.name for entry in self.folder.iterdir())
        if names != ["canary", "socket"]:
            raise CanaryChanged(f"unexpected files in the canary folder: {names}")
        canary = self.folder / "canary"
        if canary.is_symlink() or canary.read_text(encoding="utf-8") != _CANARY_TEXT:
            raise CanaryChanged("the canary file was changed")
        if self.process.poll() is not None:
            raise CanaryChanged("the canary process was killed")
        if contacts := [name for name, listener in self.listeners.items() if select.select([listener], [], [], 0)[0]]:
            raise CanaryChanged(f"the host received data or a connection over {', '.join(contacts)}")


@dataclass(frozen=True)
class CheckContext:
    """Arguments for a check: a started backend, its limits, and the canaries."""

    backend: SandboxBackend
    limits: SandboxLimits
    canaries: Canaries

    @asynccontextmanager
    async def open_sandbox(self) -> AsyncIterator[Sandbox]:
        """Acquire a sandbox, and release it when the context exits."""
        sandbox = await self.backend.acquire()
        try:
            yield sandbox
        finally:
            await sandbox.release()

    def make_job(
        self, program: str, cases: Sequence[str] = ("test_a",), timeout: float = 5.0, **options: str
    ) -> SandboxJob:
        """Return a job for the Python harness. The program can read the limits and the public facts from `HOST`."""
        facts = json.dumps({**asdict(self.limits), **self.canaries.public_facts})
        setup = f"import json; HOST = json.loads({json.dumps(facts)})\n"
        shifted_options = {name: str(int(value) + 1) for name, value in options.items()}
        return SandboxJob(read_source("python_harness"), setup + program, tuple(cases), shifted_options, None, timeout)

    async def require_working(self, sandbox: Sandbox) -> None:
        """Verify that the sandbox works, that no process from an earlier run exists, and that no canary was changed.

        Raises:
            CheckFailed: one of these conditions is not met.
        """
        result = await sandbox.run(self.make_job(wrap_in_case(_STILL_WORKS)))
        if not has_passed(result):
            raise CheckFailed(f"a harmless program failed afterwards: {describe_outcome(result)}")
        self.canaries.verify()


@dataclass(frozen=True)
class Check:
    """A test of one property that a backend must have.

    `needs` is the name of a limit that the check relies on, as used in `SandboxBackend.unenforced`. If this machine
    cannot enforce the limit, the check is skipped. `procedure` raises `CheckFailed` if the backend lacks the property.
    A `SandboxError` also counts as a failure, because programs must not be able to break their sandbox.
    """

    name: str
    group: str
    procedure: Callable[[CheckContext], Awaitable[None]] = field(repr=False)
    needs: str = ""

    def __str__(self) -> str:
        return f"{self.group}: {self.name}"


def wrap_in_case(body: str) -> str:
    """Return a program with a single test case, whose body consists of the given statements."""
    indented = "".join(f"    {line}\n" for line in body.strip().split("\n"))
    return f"def test_a():\n{indented}"


def has_passed(result: RunResult, cases: Sequence[str] = ("test_a",)) -> bool:
    """Return whether the run was clean, and whether exactly the cases in `cases` started and passed."""
    started_cases = [record.name for record in result.records if record.kind == "start"]
    outcomes = {record.name: record.outcome for record in select_case_records(result)}
    return result.clean and set(started_cases) == set(cases) == set(outcomes) and set(outcomes.values()) == {"passed"}


def select_case_records(result: RunResult) -> list[ReportLine]:
    """Return the records that report finished cases."""
    return [record for record in result.records if record.kind == "case"]


def describe_outcome(result: RunResult) -> str:
    """Describe in one line how a run ended."""
    records = select_case_records(result)
    endings = [f"{record.outcome} {record.error_type} {record.message}".strip() for record in records]
    stopped_by = "timed out" if result.timed_out else result.limit and f"reached its {result.limit} limit"
    exit_status = f"exit code {result.exit_code}" if result.signal is None else f"signal {result.signal}"
    return "; ".join(filter(None, [*endings, stopped_by, exit_status, result.stderr.strip()[-200:]]))


def make_checks(
    group: str,
    bodies: Mapping[str, str],
    expectation: Callable[[RunResult], str | None],
    *,
    needs: str = "",
    timeout: float = 5.0,
    is_program: bool = False,
) -> list[Check]:
    """Return one check for each program. The check runs the program in a sandbox and evaluates the result.

    `expectation` returns None if the result is correct, and otherwise describes the expected result. Each body contains
    the statements of one test case, or a whole program if `is_program` is set.
    """

    def make_check(name: str, body: str) -> Check:
        async def procedure(context: CheckContext) -> None:
            async with context.open_sandbox() as sandbox:
                program = body if is_program else wrap_in_case(body)
                await require(expectation, sandbox, context.make_job(program, timeout=timeout))
                await context.require_working(sandbox)

        return Check(name, group, procedure, needs)

    return [make_check(name, body) for name, body in bodies.items()]


async def require(expectation: Callable[[RunResult], str | None], sandbox: Sandbox, job: SandboxJob) -> None:
    """Run a program and raise `CheckFailed` if its result does not meet the expectation."""
    result = await sandbox.run(job)
    if problem := expectation(result):
        raise CheckFailed(f"{problem}, got: {describe_outcome(result)}")


def expect_pass(result: RunResult) -> str | None:
    """Return None if the program passed. Otherwise, return a description of the expected result."""
    return None if has_passed(result) else "expected the program to pass"


def expect_no_pass(result: RunResult) -> str | None:
    """Return None if the program did not pass. Otherwise, return a description of the expected result."""
    return "expected the program not to pass" if has_passed(result) else None


def expect_refusal(result: RunResult) -> str | None:
    """Return None if the system refused the program's request. Otherwise, describe the expected result."""
    errors = [record.error_type for record in select_case_records(result) if record.outcome == "error"]
    return None if errors and set(errors) <= _REFUSALS else "expected a refusal"


_REFUSALS = {"OSError", "PermissionError", "FileNotFoundError"}


@contextmanager
def open_canaries() -> Iterator[Canaries]:
    """Set up the canaries, and remove them when the context exits."""
    secret = secrets.token_hex(16)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agent-selfcheck-")))
        folder.chmod(0o777)
        (folder / "canary").write_text(_CANARY_TEXT, encoding="utf-8")
        (folder / "canary").chmod(0o666)
        process = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, env={_SECRET: secret}
        )
        # callbacks run in reverse order: kill the process, then wait for it
        stack.callback(process.communicate)
        stack.callback(process.kill)
        os.environ[_SECRET] = secret
        stack.callback(os.environ.pop, _SECRET, None)
        listeners = {
            name: stack.enter_context(_open_listener(family, kind, address))
            for name, family, kind, address in (
                ("TCP", socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", 0)),
                ("UDP", socket.AF_INET, socket.SOCK_DGRAM, ("0.0.0.0", 0)),
                ("a Unix socket", socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "socket")),
                ("an abstract Unix socket", socket.AF_UNIX, socket.SOCK_STREAM, f"\0agent-{secret[:8]}"),
            )
        }
        (folder / "socket").chmod(0o666)
        yield Canaries(folder, process, secret, listeners)


def _open_listener(family: int, kind: int, address: tuple[str, int] | str) -> socket.socket:
    server = socket.socket(family, kind)
    server.bind(address)
    if kind == socket.SOCK_STREAM:
        server.listen()
    return server
