"""Fetches wheels for a sandbox's interpreter, with the host's pip settings: index, proxy, certificates."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, NormalizedName, parse_wheel_filename

from agent.errors import DependencyUnavailable
from agent.sandbox.dependencies.closure import close_over
from agent.sandbox.dependencies.pip_process import Pip, PipOutput, before, download_on_host, folder_size, too_large
from agent.sandbox.dependencies.pip_trouble import explain, project_without_wheel

_ROUNDS = 4


@dataclass(frozen=True)
class InterpreterTag:
    """The interpreter an environment is for: which wheels it can use. `libc` is `glibc` or `musl`."""

    version: str
    implementation: str = "cp"
    machine: str = "x86_64"
    libc: str = "glibc"
    libc_version: str = "2.36"

    def __str__(self) -> str:
        return f"{self.implementation}{self.version.replace('.', '')}-{self.libc}{self.libc_version}-{self.machine}"

    @property
    def platforms(self) -> tuple[str, ...]:
        """Platform tags of the wheels it can use, best first."""
        major, minor = (int(part) for part in self.libc_version.split(".")[:2])
        if self.libc == "musl":
            return tuple(f"musllinux_{major}_{number}_{self.machine}" for number in range(minor, -1, -1))
        legacy = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
        tags: list[str] = []
        for number in range(minor, 4, -1):
            tags.append(f"manylinux_{major}_{number}_{self.machine}")
            if number in legacy:
                tags.append(f"{legacy[number]}_{self.machine}")
        return (*tags, f"linux_{self.machine}")

    @property
    def markers(self) -> dict[str, str]:
        """The values of PEP 508 markers. Of the version only major and minor are known, so the patch counts as 0."""
        name = {"cp": "CPython", "pp": "PyPy"}.get(self.implementation, self.implementation)
        return {
            "implementation_name": name.lower(),
            "implementation_version": f"{self.version}.0",
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": name,
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": f"{self.version}.0",
            "python_version": self.version,
            "sys_platform": "linux",
        }


@dataclass(frozen=True)
class Wheel:
    """A wheel on disk. `name` is canonical, `sha256` hexadecimal."""

    path: Path
    name: NormalizedName
    version: str
    sha256: str

    @property
    def locked(self) -> str:
        """The wheel as a line of a lock."""
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class WheelFetcher:
    """Fetches all wheels that requirements need, by a `pip`. `seconds` and `size` (bytes) limit one request.

    What an index got at the moment `newest` or later is left out.
    """

    pip: Pip = download_on_host
    seconds: float = 600.0
    size: int = 2 << 30
    newest: datetime | None = None

    async def fetch(self, requirements: Sequence[Requirement], interpreter: InterpreterTag, into: Path) -> list[Wheel]:
        """Download the wheels into an empty folder; returns what the interpreter needs, sorted by name.

        Raises:
            DependencyUnavailable: no index answers, or something has no wheel for the interpreter, or contradicts.
            SandboxError: pip cannot be started.
        """
        try:
            async with asyncio.timeout(self.seconds):
                return await self._fetch(requirements, interpreter, into)
        except TimeoutError:
            message = f"fetching took more than {self.seconds:g} seconds, the limit for one environment"
            raise DependencyUnavailable(message) from None

    async def _fetch(self, requirements: Sequence[Requirement], interpreter: InterpreterTag, into: Path) -> list[Wheel]:
        wanted = [str(requirement) for requirement in requirements]
        left = self.size
        for number in range(_ROUNDS):
            folder = into / str(number)
            folder.mkdir()
            await self._download(wanted, interpreter, folder, left)
            left -= await asyncio.to_thread(folder_size, folder)
            if left < 0:
                raise too_large(self.size)
            wheels = await asyncio.to_thread(read_wheels, folder.iterdir())
            # pip reads markers for the host's interpreter and system, so it may miss what the sandbox's needs.
            paths = {wheel.name: wheel.path for wheel in wheels}
            needed, missing = await asyncio.to_thread(close_over, requirements, paths, interpreter.markers)
            if not missing:
                return [wheel for wheel in wheels if wheel.name in needed]
            wanted = [*wanted, *missing]
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        raise DependencyUnavailable(f"the dependencies of {_joined(requirements)} have no end: {', '.join(missing)}")

    async def _download(self, wanted: Sequence[str], interpreter: InterpreterTag, folder: Path, size: int) -> None:
        output = await self._pip([], wanted, interpreter, folder, size)
        if output.exit_code == 0:
            return
        # pip says the same of a missing project, of one without fitting wheels, and of some conflicts: ask for details.
        project = await asyncio.to_thread(project_without_wheel, output.text)
        details = None if project is None else await self._details(project, interpreter, size)
        raise await asyncio.to_thread(explain, output.text, details, str(interpreter))

    async def _details(self, project: str, interpreter: InterpreterTag, size: int) -> str | None:
        with tempfile.TemporaryDirectory(prefix="agent-wheels-") as folder:
            output = await self._pip(["--no-deps", "-vv"], [project], interpreter, Path(folder), size)
        return output.text if output.exit_code else None

    async def _pip(
        self, options: Sequence[str], wanted: Sequence[str], interpreter: InterpreterTag, into: Path, size: int
    ) -> PipOutput:
        tag = interpreter.implementation + interpreter.version.replace(".", "")
        target = ["--implementation", interpreter.implementation, "--python-version", interpreter.version, "--abi", tag]
        platforms = [word for platform in interpreter.platforms for word in ("--platform", platform)]
        fixed = ["--only-binary=:all:", "--progress-bar=off", "--disable-pip-version-check", "--retries=1"]
        if self.newest is not None:
            fixed.append(before(self.newest))
        return await self.pip([*fixed, *target, *platforms, *options, "--", *wanted], into, size=size)


def read_wheels(paths: Iterable[Path]) -> list[Wheel]:
    """Return wheel files with names, versions and hashes, sorted by name.

    Raises:
        DependencyUnavailable: a file is no wheel.
    """
    wheels = []
    for path in paths:
        try:
            name, version, _build, _tags = parse_wheel_filename(path.name)
        except InvalidWheelFilename:
            raise DependencyUnavailable(f"{path.name[:100]!r} is no wheel: only wheels are installed") from None
        with path.open("rb") as file:
            wheels.append(Wheel(path, name, str(version), hashlib.file_digest(file, "sha256").hexdigest()))
    return sorted(wheels, key=lambda wheel: wheel.name)


def locked(names: Iterable[str]) -> tuple[str, ...]:
    """Return the lock that wheels of these file names make: `name==version`, sorted.

    Raises:
        ValueError: one is no name of a wheel.
    """
    return tuple(sorted("{}=={}".format(*parse_wheel_filename(name)[:2]) for name in names))


def _joined(requirements: Iterable[Requirement]) -> str:
    return ", ".join(str(requirement) for requirement in requirements)
