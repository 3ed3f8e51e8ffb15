"""The contract of sandboxes and backends, with every error that they may raise.

A backend starts sandboxes. A sandbox belongs to one pair, runs one program at a time without network, and is destroyed
by `release`. What the tested code did is a `RunResult`. A failure of the sandbox itself is an exception.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Progress = Callable[[str], None]
HASH_SEED = "hash_seed"
SENTINEL = "sentinel"


@dataclass(frozen=True)
class SandboxLimits:
    """What one sandbox may use. Sizes are in bytes, `cpus` in cores; `files` and `inodes` hold for each folder.

    With `inodes` 0 the number of files is not limited.
    """

    memory: int = 1 << 30
    processes: int = 128
    cpus: float = 1.0
    files: int = 256 << 20
    output: int = 64 << 10
    open_files: int = 512
    inodes: int = 32768


@dataclass(frozen=True)
class SandboxJob:
    """One execution: a program and the harness that runs it inside the sandbox.

    `harness` is Python source that defines `main(job, emit)` (see `sandbox/inside/supervisor.py`) and gets `program`
    and `options` as strings. `environment` is the key of a built environment or None. `timeout` is in seconds. The
    option `HASH_SEED` sets the interpreter's hash seed (default 0), which decides the order of sets. With the option
    `SENTINEL` the harness lets no function of the snippet run.
    """

    harness: str
    program: str
    cases: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    environment: str | None = None
    timeout: float = 15.0


@dataclass(frozen=True)
class Frame:
    """One traceback entry, outermost first in a sequence."""

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True)
class ReportLine:
    """One line of the harness's report, authenticated by the run's nonce.

    `kind`: `start` (a case began), `case` (a case ended with `outcome` passed, failed, error or skipped), `load`
    (loading the program raised), `tamper` (the harness found its own parts changed), `end` (all was done).
    """

    kind: str
    name: str = ""
    outcome: str = ""
    error_type: str = ""
    message: str = ""
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True)
class RunResult:
    """What the trusted side of a sandbox saw of one run. Text is decoded with replacement and capped.

    `exit_code` is None when a signal ended the process (`signal` is its number). `limit` names the limit that the
    program hit (`memory`, `output`, `report`). `hang` is the main thread's stack at a timeout, if known; `hang_beside`
    are the stacks of other threads and pending asyncio tasks. `shared` marks the result of an identical earlier run.
    """

    records: tuple[ReportLine, ...] = ()
    exit_code: int | None = 0
    signal: int | None = None
    timed_out: bool = False
    limit: str | None = None
    hang: tuple[Frame, ...] = ()
    hang_beside: tuple[tuple[Frame, ...], ...] = ()
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False
    seconds: float = 0.0
    shared: bool = False

    @property
    def clean(self) -> bool:
        """Whether the run ended by itself: end record, exit code 0, no limit, no timeout, no tampering."""
        kinds = [record.kind for record in self.records]
        return (
            self.exit_code == 0
            and not self.timed_out
            and self.limit is None
            and "tamper" not in kinds
            and kinds.count("end") == 1
            and kinds[-1] == "end"
        )


@dataclass(frozen=True)
class CommandResult:
    """What a command run in a sandbox printed and how it ended."""

    exit_code: int | None
    output: str
    timed_out: bool = False


@dataclass(frozen=True)
class Environment:
    """A built set of distributions: `key` names it to a `SandboxJob`, `installed` lists `name==version`, sorted."""

    key: str
    requirements: tuple[str, ...]
    installed: tuple[str, ...]


class Sandbox(ABC):
    """One pair's sandbox. Processes and files inside do not outlive it."""

    @property
    def usable(self) -> bool:
        """Whether the sandbox seems alive, as far as is known without a request."""
        return True

    @abstractmethod
    async def run(self, job: SandboxJob) -> RunResult:
        """Run a program. Its processes have ended when this returns; its files stay until `release`.

        Raises:
            EnvironmentGone: the program's environment was removed from the store.
            SandboxError: runner, container or engine broke; release the sandbox and do not use it again.
        """

    @abstractmethod
    async def run_command(self, argv: Sequence[str], timeout: float) -> CommandResult:
        """Run a command as the unprivileged user, without a shell and without network.

        Raises:
            SandboxError: as for `run`.
        """

    @abstractmethod
    async def release(self) -> None:
        """Destroy the sandbox with its processes and files. Does nothing for a released sandbox."""


class EnvironmentBuilder(ABC):
    """Builds environments in throwaway sandboxes of their own; equal requests share one build.

    `always` are requirements that are part of every environment, so that no program should run without one.
    """

    base_requirements: tuple[str, ...] = ()

    @abstractmethod
    async def build(self, requirements: Sequence[str]) -> Environment:
        """Return the environment for these requirements (PEP 508), building it on first need; it stays until `release`.

        Raises:
            DependencyUnavailable: a requirement is malformed, unknown, has no wheel, or no index answers.
            SandboxError: the builder itself broke.
        """

    async def find_cached(self, key: str) -> Environment | None:  # noqa: ARG002
        """Return the environment that the store has under a key, or None; it stays until `release`.

        Raises:
            SandboxError: the store cannot be read.
        """
        return None

    def release(self, key: str) -> None:  # noqa: B027
        """Undo one `build`: an environment that nobody uses may be removed."""

    def forget(self, key: str) -> None:  # noqa: B027
        """Note that an environment was removed: the next `build` makes it again."""

    async def find_requirement(self, import_name: str) -> str | None:  # noqa: ARG002
        """Return a requirement that may be taken to provide a name that no map of imports has, or None.

        Raises:
            DependencyUnavailable: the package index does not answer.
            SandboxError: the builder itself broke.
        """
        return None


class SandboxBackend(ABC):
    """Starts sandboxes of one kind. One per process, used from one event loop. `limits` hold for each sandbox."""

    name: str
    environments: EnvironmentBuilder
    limits: SandboxLimits | None = None

    async def start(self, progress: Progress) -> None:  # noqa: B027
        """Prepare engine and image. `progress` is called with lines for the user.

        Raises:
            SandboxUnavailable: the backend does not work on this machine; the message says what to do.
        """

    def listen(self, waits: Progress) -> None:  # noqa: B027
        """Call `waits` with what work waits for, such as the packages that are being installed."""

    def describe(self) -> Mapping[str, str]:
        """Return what manifests record: backend, versions, image digest, interpreter, platform."""
        return {"backend": self.name}

    def unenforced(self) -> Mapping[str, str]:
        """Return the limits that this machine cannot enforce (`memory`, `cpu`, …), each with the reason."""
        return {}

    @abstractmethod
    async def acquire(self) -> Sandbox:
        """Start a fresh sandbox.

        Raises:
            SandboxError: the sandbox did not start.
        """

    async def close(self) -> None:  # noqa: B027
        """Release everything this backend started."""
