"""Installs wheels with uv, in a subprocess of this host: nothing of a package runs, for only wheels are taken.

uv is given this host's settings for where packages come from (`sources.py`) and nothing else of its environment. Its
cache lies in our store. Started by root, it runs as nobody, from copies of what nobody may not read.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from packaging.utils import canonicalize_name

from agent.errors import DependencyUnavailable, SandboxError
from agent.sandbox.base import Progress
from agent.sandbox.dependencies.package_index import REFUSED, UNREACHABLE
from agent.sandbox.dependencies.sources import PackageSources, read_sources
from agent.sandbox.interpreter import UNPRIVILEGED, InterpreterTag, as_unprivileged, find_interpreter
from agent.sandbox.places import replacing, shared_cache

_POLL_SECONDS = 0.5
_STALE_SECONDS = 24 * 3600.0
_LONGEST = 600
_GLIBC = (40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 17)
"""The minor versions of glibc 2 that uv knows platforms of."""

_UNREACHABLE = re.compile(r"Request failed|Failed to fetch|error sending request|timed out|dns error|HTTP status", re.I)
_REFUSED = re.compile(r"\b(401 Unauthorized|403 Forbidden|407 Proxy)")
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?", re.DOTALL)
_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Target:
    """What an installation is for.

    `python` is the path of the sandboxes' interpreter on this host, if the host has it. Files that an index received
    at the moment `newest` or later are left out.
    """

    tag: InterpreterTag
    python: str | None = None
    newest: datetime | None = None

    def arguments(self) -> list[str]:
        """Return the options of uv for this target.

        Raises:
            DependencyUnavailable: uv knows no such platform or implementation.
        """
        platform = _platform(self.tag)
        if self.python is None and (platform is None or self.tag.implementation != "cp"):
            raise DependencyUnavailable(f"{self.tag}: packages are installed for CPython on known platforms alone")
        options = ["--python", self.python or find_interpreter().path]
        options += ["--python-version", self.tag.full or self.tag.version]
        options += [] if platform is None else ["--python-platform", platform]
        return options if self.newest is None else [*options, "--exclude-newer", self.newest.isoformat()]


def _platform(tag: InterpreterTag) -> str | None:
    if tag.machine not in ("x86_64", "aarch64"):
        return None
    if tag.libc == "musl":
        return f"{tag.machine}-unknown-linux-musl"
    minor = int(tag.libc_version.split(".")[1])
    known = next((each for each in _GLIBC if each <= minor), None)
    return None if known is None else f"{tag.machine}-manylinux_2_{known}"


class Uv:
    """uv with a cache below `root`, by default a folder that all runs share.

    One installation may take `seconds`. It is stopped when a disk that it writes to has less than `least_free` bytes.
    """

    def __init__(
        self,
        root: Path | None = None,
        *,
        sources: Callable[[], PackageSources] = read_sources,
        seconds: float = 900.0,
        least_free: int = 1 << 30,
    ) -> None:
        self.root = root or shared_cache() / "uv"
        self.cache = self.root / "cache"
        self.sources = sources
        self._seconds = seconds
        self._least_free = least_free
        self._reported: set[str] = set()

    async def install(
        self,
        requirements: Sequence[str],
        target: Target,
        into: Path,
        *,
        progress: Progress = lambda _line: None,
        offline: bool = False,
    ) -> tuple[str, ...]:
        """Install requirements and their dependencies into a new folder; return the lock (`name==version`, sorted).

        With `offline`, or when no index answers, uv installs from its cache and from local folders.

        Raises:
            DependencyUnavailable: no index answers, nothing fits, something has no wheel, or the disk is full.
            SandboxError: uv cannot be started.
        """
        try:
            exit_code, text = await self._run(requirements, target, into, progress, offline)
            if exit_code == 2 and not offline and _UNREACHABLE.search(text):
                cached, _text = await self._run(requirements, target, into, progress, True)
                exit_code = 0 if cached == 0 else exit_code
        except OSError as error:
            raise SandboxError(f"uv cannot be run to install packages: {error}") from error
        if exit_code < 0:
            raise SandboxError(f"uv was ended by signal {-exit_code}")
        if exit_code > 0:
            raise explain(text)
        return await asyncio.to_thread(_tidy, into)

    async def _run(
        self, requirements: Sequence[str], target: Target, into: Path, progress: Progress, offline: bool
    ) -> tuple[int, str]:
        """Run uv in an empty folder of its own; return its exit code and what it printed."""
        await asyncio.to_thread(_make_folders, self.root, self.cache, into)
        with tempfile.TemporaryDirectory(dir=self.root, prefix="work-", ignore_cleanup_errors=True) as folder:
            work = Path(folder)
            command, environment = await asyncio.to_thread(self._prepare, target, into, work, progress)
            command += ["--offline"] if offline else []
            return await self._watch([*command, "--", *requirements], environment, work, into)

    def _prepare(self, target: Target, into: Path, work: Path, progress: Progress) -> tuple[list[str], dict[str, str]]:
        """Return uv's command line and variables. What they name is copied where uv's user may not read it."""
        sources = self.sources()
        for note in set(sources.notes) - self._reported:
            self._reported.add(note)
            progress(note)
        command = [_executable(self.root), "pip", "install", "--no-config", "--no-progress", "--color", "never"]
        command += ["--target", str(into), "--cache-dir", str(self.cache), "--link-mode", "copy"]
        command += ["--only-binary", ":all:", "--index-strategy", "first-index", *target.arguments()]
        command += [] if sources.indexes else ["--no-index"]
        for folder in sources.folders:
            command += ["--find-links", _readable(folder, work)]
        environment = _environment(sources, work)
        _hand_over(work, into, *work.iterdir())
        return command, environment

    async def _watch(
        self, command: Sequence[str], environment: dict[str, str], work: Path, into: Path
    ) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            cwd=work,
            env=environment,
            start_new_session=True,
            **as_unprivileged(),
        )
        printed = asyncio.ensure_future(process.communicate())
        deadline = time.monotonic() + self._seconds
        problem = None
        try:
            while not printed.done() and (problem := self._find_problem(deadline, into)) is None:
                await asyncio.wait({printed}, timeout=_POLL_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            output = (await asyncio.shield(printed))[1]
        if problem is not None:
            await self._manage_cache("prune")  # uv was killed and left half-unpacked files
            raise DependencyUnavailable(problem)
        assert process.returncode is not None
        return process.returncode, clean(output.decode("utf-8", "replace"))

    def _find_problem(self, deadline: float, into: Path) -> str | None:
        """Return why an installation must be stopped, or None."""
        if time.monotonic() > deadline:
            return f"the installation took more than {self._seconds:g} seconds, the limit for one environment"
        if min(shutil.disk_usage(folder).free for folder in (self.cache, into)) < self._least_free:
            return f"the installation would fill the disk, which has less than {self._least_free >> 20} MB left"
        return None

    async def clean(self) -> None:
        """Empty the cache, once no installation uses it: all of it can be downloaded again."""
        await self._manage_cache("clean")

    async def _manage_cache(self, verb: str) -> None:
        import uv

        command = [uv.find_uv_bin(), "cache", verb, "--no-config", "--quiet", "--cache-dir", str(self.cache)]
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
        await process.wait()

    def size(self) -> int:
        """Return how many bytes the cache takes."""
        size = 0
        for parent, _folders, names in os.walk(self.cache):
            for name in names:
                with suppress(OSError):
                    size += Path(parent, name).lstat().st_size
        return size


def explain(text: str) -> DependencyUnavailable:
    """Return the error for what uv printed when it failed."""
    if _REFUSED.search(text):
        return DependencyUnavailable(REFUSED, temporary=True)
    if _UNREACHABLE.search(text):
        return DependencyUnavailable(UNREACHABLE, temporary=True)
    if "missing an upload date" in text:
        return DependencyUnavailable(
            "the package index does not say when its files were uploaded (PEP 700), so none of them can be shown to be "
            "old enough for --exclude-newer: use an index that says it, as pypi.org does, or leave the option out"
        )
    said = " ".join(re.split(r"^error: ", text, maxsplit=1, flags=re.MULTILINE)[-1].split())
    said = said.removeprefix("No solution found when resolving dependencies cause: ")[:_LONGEST]
    if "network was disabled" in text:
        said = f"not fetched before, and the network is switched off: {said}"
    return DependencyUnavailable(said or "uv failed and printed nothing")


def clean(text: str) -> str:
    """Take escape sequences, control characters and the secrets of URLs out of a text."""
    text = _ESCAPE.sub("", text).replace("\r\n", "\n")
    text = "".join(character if character.isprintable() or character in "\n\t" else " " for character in text)
    return _WORD.sub(_without_secret, text)


def _without_secret(word: re.Match[str]) -> str:
    # up to the last @: people put passwords into URLs that have a / or @ in them and should be quoted, but are not
    scheme, separator, rest = word[0].partition("://")
    _secret, at, place = rest.rpartition("@")
    return f"{scheme}{separator}***@{place}" if at else word[0]


def _tidy(tree: Path) -> tuple[str, ...]:
    """Remove what is uv's own from an installed tree; return the tree's lock."""
    shutil.rmtree(tree / "bin", ignore_errors=True)
    (tree / ".lock").unlink(missing_ok=True)
    names = (path.name.removesuffix(".dist-info").rpartition("-") for path in tree.glob("*.dist-info"))
    return tuple(sorted(f"{canonicalize_name(name)}=={version}" for name, _, version in names))


def _environment(sources: PackageSources, work: Path) -> dict[str, str]:
    """Return uv's variables. Files that they name are copied, since nobody may not read everything that root may."""
    environment = {
        **{"PATH": os.defpath, "HOME": str(work), "TMPDIR": str(work)},
        **{"UV_PYTHON_DOWNLOADS": "never", "UV_HTTP_RETRIES": "1"},
        **sources.environment,
    }
    for name, path in sources.files.items():
        if path.is_dir():
            environment["SSL_CERT_DIR"] = str(path)
        else:
            environment[name] = str(shutil.copyfile(path, work / name.lower()))
    return environment


def _make_folders(root: Path, cache: Path, into: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    cache.mkdir(mode=0o700, exist_ok=True)
    into.mkdir(parents=True, exist_ok=True)
    remove_stale(root, "work-*")
    if os.geteuid() == 0:
        root.chmod(0o755)
        into.parent.chmod(0o755)
    _hand_over(cache)


def _hand_over(*paths: Path) -> None:
    """Make the user nobody the owner of paths, where uv runs as nobody."""
    if os.geteuid() == 0:
        for path in paths:
            os.chown(path, UNPRIVILEGED, UNPRIVILEGED)


def _executable(root: Path) -> str:
    """Return uv; for root a copy of it, since nobody may not be able to enter the folder where it is installed."""
    import uv

    original = Path(uv.find_uv_bin())
    if os.geteuid() != 0:
        return str(original)
    status = original.stat()
    copy = root / f"uv-{status.st_mtime_ns}-{status.st_size}"
    if not copy.exists():
        with replacing(copy) as new:
            shutil.copyfile(original, new)
            new.chmod(0o755)
    return str(copy)


def _readable(folder: str, work: Path) -> str:
    """Return a folder that uv may read: a copy of the wheels of one that only root may enter."""
    path = Path(folder)
    if os.geteuid() != 0 or all(place.stat().st_mode & 0o001 for place in (path, *path.parents)):
        return folder
    copy = Path(tempfile.mkdtemp(dir=work))
    for wheel in path.glob("*.whl"):
        shutil.copyfile(wheel, copy / wheel.name)
    return str(copy)


def remove_stale(folder: Path, pattern: str = "*") -> None:
    """Remove what installations left in a folder that were killed long ago."""
    for path in folder.glob(pattern):
        with suppress(FileNotFoundError):
            if path.lstat().st_mtime < time.time() - _STALE_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
