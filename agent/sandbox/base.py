"""The interfaces of sandboxes and backends, with the errors that each method raises.

A backend starts sandboxes. A sandbox belongs to one pair, runs one program at a time without network access, and is
destroyed by `release`. The outcome of a program is returned as a `RunResult`. Failures of the sandbox itself are raised
as exceptions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agent.types import Frozen, Origin

Notify = Callable[[str], None]
"""Receives a message for the user."""
SENTINEL = "sentinel"


Packages = Literal["pypi", "npm"]
"""The ecosystem of a language's packages."""


@dataclass(frozen=True)
class SandboxLimits:
    """Resource limits of one sandbox. Sizes are in bytes. `cpus` is the number of cores.

    `files` (bytes) and `inodes` (number of files, 0 for no limit) apply to each writable folder separately.
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

    `harness` is Python source that defines `main(job, emit)` (see `sandbox/inside/supervisor.py`). `environment` is
    the key of a built environment or None. `timeout` is in seconds. With the `SENTINEL` option, every function of
    the snippet raises an exception when it is called. If `fork` is true, the sandbox may run the program in a fork of a
    process that has imported the snippet's module.

    If `argv` is not empty, this command replaces the harness: a runner in another language, which reads its job from
    standard input. Its first part is the name of a toolchain's program.
    """

    harness: str
    program: str
    cases: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    environment: str | None = None
    timeout: float = 15.0
    fork: bool = False
    argv: tuple[str, ...] = ()


@dataclass(frozen=True)
class Toolchain:
    """The program that runs a language's tests, such as Node.

    `command` is its name on the PATH. `wheel` is the import name of a package that contains `bin/<command>`, or "".
    `minimum` is the oldest version that works. `remedy` tells the user how to install it.
    """

    command: str
    wheel: str
    minimum: tuple[int, ...]
    remedy: str


class Command(Frozen):
    """One command of a repair and its outcome."""

    kind: Literal["command"] = "command"
    command: str
    outcome: Literal["installed", "ran", "refused", "failed"]
    output: str = ""


@dataclass(frozen=True)
class Frame:
    """One traceback entry. In sequences of frames, the outermost frame comes first."""

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True)
class ReportLine:
    """One line of the harness's report, signed with the run's key.

    `kind` is `start` (a case started), `case` (a case finished), `load` (loading the program raised an exception),
    `sentinel` (this run records entries), `entered` (a case entered the snippet, or the program did while it was
    loaded), `tamper` or `end` (the harness finished). `tamper` means that the program forged a record or changed
    something that affects the verdict. The `outcome` of a case is passed, failed, error or
    skipped.
    """

    kind: str
    name: str = ""
    outcome: str = ""
    error_type: str = ""
    message: str = ""
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True)
class RunResult:
    """The outcome of one run, as observed by the trusted side of the sandbox. Output is decoded and may be truncated.

    If a signal ended the process, `exit_code` is None and `signal` is the signal's number. `limit` names the limit that
    the program exceeded (`memory`, `output` or `report`). `hang` is the main thread's stack at a timeout, if known.
    `hang_beside` contains the stacks of other threads and pending asyncio tasks. `shared` is true if the result was
    reused from an identical run. `forked` is true if the program ran in a fork (see `SandboxJob.fork`).
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
    forked: bool = False

    @property
    def clean(self) -> bool:
        """Whether the run ended with exit code 0 and one `end` record, without tampering, timeout or exceeded limit."""
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
    """The output and exit code of a command. `exit_code` is None after a signal or a timeout."""

    exit_code: int | None
    output: str
    timed_out: bool = False


@dataclass(frozen=True)
class Environment:
    """A set of installed distributions. Pass `key` to `SandboxJob`.

    `installed` contains sorted `name==version` strings, or `name@version` for npm packages.
    """

    key: str
    requirements: tuple[str, ...]
    installed: tuple[str, ...]


@dataclass(frozen=True)
class Checkout:
    """The module of a function in the user's git clones. Pass `requirement` to `EnvironmentBuilder.build`.

    `module` is the import path of the module in an environment with this requirement.
    """

    requirement: str
    module: str


class Sandbox(ABC):
    """The sandbox of one pair. `release` removes its processes and files."""

    @property
    def usable(self) -> bool:
        """Whether the sandbox appears to be alive. Reading this property does not send a request."""
        return True

    @abstractmethod
    async def run(self, job: SandboxJob) -> RunResult:
        """Run a program and wait until all its processes have exited. Its files remain until `release` is called.

        Raises:
            ForkRefused: the job has `fork`, and the sandbox cannot fork a process for it.
            EnvironmentGone: the program's environment was removed from the store.
            SandboxError: the supervisor, container or engine failed. Release the sandbox and do not use it again.
        """

    @abstractmethod
    async def run_command(self, argv: Sequence[str], timeout: float) -> CommandResult:
        """Run a command as the unprivileged user, without a shell or network access.

        Raises:
            SandboxError: see `run`.
        """

    @abstractmethod
    async def release(self) -> None:
        """Destroy the sandbox with its processes and files. Does nothing if the sandbox was already released."""


class EnvironmentBuilder(ABC):
    """Builds environments in separate, temporary sandboxes. Concurrent identical requests share one build.

    `base_requirements` are part of every environment. If this tuple is not empty, every program must run in an
    environment.
    """

    base_requirements: tuple[str, ...] = ()

    @abstractmethod
    async def build(self, requirements: Sequence[str]) -> Environment:
        """Return the environment for these requirements, building it if needed.

        Requirements have the format of PEP 508, or `name@range` for npm packages.

        The store keeps the environment until `release` is called.

        Raises:
            DependencyUnavailable: a requirement is malformed, is unknown or has no wheel; or no package index responds.
            SandboxError: the builder failed.
        """

    async def find_checkout(self, origin: Origin) -> Checkout | None:  # noqa: ARG002
        """Return the module of a function in the user's git clones, or None if `origin` has no commit of a repository.

        Raises:
            DependencyUnavailable: the clones do not contain the repository, the commit or the module.
        """
        return None

    async def find_cached(self, key: str) -> Environment | None:  # noqa: ARG002
        """Return the cached environment with this key, or None.

        The store keeps the environment until `release` is called.

        Raises:
            SandboxError: the store cannot be read.
        """
        return None

    def release(self, key: str) -> None:  # noqa: B027
        """Release an environment. The store may remove environments that are not in use.

        Call `release` once for each call to `build` or `find_cached`.
        """

    def forget(self, key: str) -> None:  # noqa: B027
        """Record that an environment was removed. The next `build` call then rebuilds it."""

    async def find_requirement(self, import_name: str) -> str | None:  # noqa: ARG002
        """Return the requirement that provides an import name, or None if there is none.

        This method is for import names that the built-in table of import names does not contain.

        Raises:
            DependencyUnavailable: the distribution is refused, or the package index does not respond.
            SandboxError: the builder failed.
        """
        return None


class SandboxBackend(ABC):
    """Starts sandboxes of one kind. Use one instance per process, from one event loop.

    `limits` contains the limits of each sandbox, or is None if the backend has no limits.
    """

    name: str
    environments: EnvironmentBuilder
    limits: SandboxLimits | None = None

    async def start(self, progress: Notify) -> None:  # noqa: B027
        """Prepare the engine and the image. `progress` receives messages for the user.

        Raises:
            SandboxUnavailable: the backend does not work on this machine. The message explains how to fix this.
        """

    def listen(self, on_wait: Notify) -> None:  # noqa: B027
        """Call `on_wait` with the reason whenever work must wait, for example while packages are being installed."""

    def describe(self) -> Mapping[str, str]:
        """Return the backend's name, versions, image digest, interpreter and platform for the manifest."""
        return {"backend": self.name}

    def unenforced(self) -> Mapping[str, str]:
        """Return the limits that this machine cannot enforce (`memory`, `cpu`, …), mapped to the reasons."""
        return {}

    async def require_toolchain(self, toolchain: Toolchain) -> str:  # noqa: ARG002
        """Return the version of a toolchain in the sandboxes, or "" if the backend does not check toolchains.

        Call this method before any program uses the toolchain. From then on, `describe` contains the version.

        Raises:
            SandboxUnavailable: the toolchain is missing or too old. The message explains how to install it.
            SandboxError: no sandbox starts.
        """
        return ""

    @abstractmethod
    async def acquire(self) -> Sandbox:
        """Return a fresh sandbox.

        Raises:
            SandboxError: the sandbox did not start.
        """

    async def close(self) -> None:  # noqa: B027
        """Release everything that this backend started."""
