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
import subprocess
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
from agent.sandbox.dependencies.package_index import REFUSED, UNREACHABLE, refused
from agent.sandbox.dependencies.sources import Sources, read_sources
from agent.sandbox.interpreter import UNPRIVILEGED, InterpreterTag, as_unprivileged, find_interpreter
from agent.sandbox.places import replacing, shared_cache

_LOOK_SECONDS = 0.5
_STALE = 24 * 3600.0
_OUTPUT = 1 << 20
_LONGEST = 600
_GLIBC = (40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 17)
"""The minor versions of glibc 2 that uv knows platforms of."""

_INSTALLED = re.compile(r"^ \+ (\S+)==(\S+)", re.MULTILINE)
_CAUSE = re.compile(r"^error: (?:No solution found[^\n]*\n\s+cause: )?(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
_ABSENT = re.compile(r"([\w.-]+) was not found in the (?:package registry|provided package locations)")
_SOURCE_ONLY = re.compile(r"([\w.\[\]-]+?)(?:[=<>!~]\S*)? ha(?:s|ve) no usable wheels")
_OTHER_WHEELS = re.compile(r"([\w.\[\]-]+?)(?:[=<>!~]\S*)? ha(?:s|ve) no wheels with a matching")
_TOO_NEW = re.compile(r"`([\w.-]+)` was filtered by `exclude-newer`")
_UNREACHABLE = re.compile(r"Request failed|Failed to fetch|error sending request|timed out|dns error|HTTP status", re.I)
_NO_PROJECT = "no such distribution on the package index"
_REFUSED = re.compile(r"\b(?:401|403|407)\b")
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?", re.DOTALL)
_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Room:
    """What one installation may write, to its folder and to the cache together: bytes, and files with their folders."""

    size: int = 8 << 30
    files: int = 400_000


@dataclass(frozen=True)
class Target:
    """What an installation is for. `python` is where this host has the sandboxes' interpreter, if it has it.

    What an index got at the moment `newest` or later is left out.
    """

    tag: InterpreterTag
    python: str | None = None
    newest: datetime | None = None

    def arguments(self) -> list[str]:
        """Return them as options of uv.

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

    `seconds` and `room` limit one installation.
    """

    def __init__(
        self,
        root: Path | None = None,
        *,
        sources: Callable[[], Sources] = read_sources,
        room: Room = Room(),
        seconds: float = 900.0,
    ) -> None:
        self.root = root or shared_cache() / "uv"
        self.cache = self.root / "cache"
        self.sources = sources
        self._room = room
        self._seconds = seconds
        self._noted: set[str] = set()

    async def install(
        self,
        requirements: Sequence[str],
        target: Target,
        into: Path,
        *,
        progress: Progress = lambda _line: None,
        offline: bool = False,
    ) -> tuple[str, ...]:
        """Install requirements and what they need into a folder that is made; return the lock (`name==version`).

        With `offline` only the cache and folders are used; so they are when no index answers.

        Raises:
            DependencyUnavailable: no index answers, nothing fits, something has no wheel, or there is no room.
            SandboxError: uv cannot be started.
        """
        try:
            exit_code, text = await self._run(requirements, target, into, progress, offline)
            if exit_code == 2 and not offline and _UNREACHABLE.search(text):
                again, cached = await self._run(requirements, target, into, progress, True)
                exit_code, text = (0, cached) if again == 0 else (exit_code, text)
        except OSError as error:
            raise SandboxError(f"uv cannot be run to install packages: {error}") from error
        if exit_code < 0:
            raise SandboxError(f"uv was ended by signal {-exit_code}")
        if exit_code != 0:
            failure = explain(text, str(target.tag))
            name, _, reason = str(failure).partition(": ")
            if reason == _NO_PROJECT and await refused(name, self.sources()):
                failure = DependencyUnavailable(REFUSED, temporary=True)
            raise failure
        return tuple(sorted(f"{canonicalize_name(name)}=={version}" for name, version in _INSTALLED.findall(text)))

    async def _run(
        self, requirements: Sequence[str], target: Target, into: Path, progress: Progress, offline: bool
    ) -> tuple[int, str]:
        """Run uv in an empty folder of its own."""
        await asyncio.to_thread(_make_room, self.root, self.cache)
        work = Path(await asyncio.to_thread(tempfile.mkdtemp, dir=self.root, prefix="work-"))
        try:
            sources = await asyncio.to_thread(self.sources)
            command = await asyncio.to_thread(self._command, sources, target, into, work, progress)
            environment = await asyncio.to_thread(_environment, sources, work)
            await asyncio.to_thread(_give, work, into)
            offline_option = ["--offline"] if offline else []
            return await self._watched([*command, *offline_option, "--", *requirements], environment, work, into)
        finally:
            await asyncio.to_thread(shutil.rmtree, work, ignore_errors=True)

    def _command(self, sources: Sources, target: Target, into: Path, work: Path, progress: Progress) -> list[str]:
        command = [_executable(self.root), "pip", "install", "--no-config", "--no-progress", "--color", "never"]
        command += ["--target", str(into), "--cache-dir", str(self.cache), "--link-mode", "copy"]
        command += ["--only-binary", ":all:", "--index-strategy", "unsafe-best-match", *target.arguments()]
        command += [] if sources.indexes else ["--no-index"]
        for folder in sources.folders:
            command += ["--find-links", _readable(folder, work)]
        for note in sources.notes:
            if note not in self._noted:
                self._noted.add(note)
                progress(note)
        return command

    async def _watched(
        self, command: Sequence[str], environment: dict[str, str], work: Path, into: Path
    ) -> tuple[int, str]:
        began = time.time() - 2  # file systems keep coarse times
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
        ended = asyncio.ensure_future(_ended(process))
        watch = asyncio.ensure_future(self._overfull(into, began))
        try:
            async with asyncio.timeout(self._seconds):
                await asyncio.wait({ended, watch}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            raise DependencyUnavailable(
                f"the installation took more than {self._seconds:g} seconds, the limit for one environment"
            ) from None
        finally:
            watch.cancel()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            output, exit_code = await asyncio.shield(ended)
        if (watch.done() and not watch.cancelled()) or await asyncio.to_thread(self._excess, into, began):
            for path in await asyncio.to_thread(self._since, began):
                await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)
            raise DependencyUnavailable(
                f"the packages take more than {self._room.size >> 20} MB or {self._room.files} files with their "
                "downloads, the limit for one environment"
            )
        return exit_code, clean(output.decode("utf-8", "replace"))

    async def _overfull(self, into: Path, began: float) -> None:
        """Return once an installation takes more room than it may."""
        while not await asyncio.to_thread(self._excess, into, began):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)

    def _excess(self, into: Path, began: float) -> bool:
        size = files = 0
        for root in (into, *self._since(began)):
            for parent, folders, names in os.walk(root):
                files += len(folders) + len(names)
                for name in names:
                    with suppress(OSError):
                        size += os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118
                if size > self._room.size or files > self._room.files:
                    return True
        return False

    def _since(self, began: float) -> list[Path]:
        """Return what of the cache was written to since a moment: downloads, and what they were unpacked to."""
        with suppress(OSError):
            buckets = [bucket for bucket in self.cache.iterdir() if bucket.is_dir()]
            unpacked = [entry for bucket in buckets if bucket.name.startswith("archive") for entry in bucket.iterdir()]
            loose = [bucket for bucket in buckets if bucket.name.startswith(".tmp")]
            return [path for path in (*unpacked, *loose) if _changed(path) >= began]
        return []

    async def clean(self) -> None:
        """Empty the cache: all of it can be downloaded again."""
        await asyncio.to_thread(shutil.rmtree, self.cache, ignore_errors=True)

    def size(self) -> int:
        """Return how many bytes the cache takes."""
        size = 0
        for parent, _folders, names in os.walk(self.cache):
            for name in names:
                with suppress(OSError):
                    size += Path(parent, name).lstat().st_size
        return size


def explain(text: str, interpreter: str) -> DependencyUnavailable:
    """Return the error for what uv printed when it failed."""
    cause = _CAUSE.search(text)
    said = " ".join((cause[1] if cause else text).split())
    if _REFUSED.search(text) and _UNREACHABLE.search(text):
        return DependencyUnavailable(REFUSED, temporary=True)
    if _UNREACHABLE.search(text):
        return DependencyUnavailable(UNREACHABLE, temporary=True)
    if "network was disabled" in text:
        return DependencyUnavailable(f"not fetched before, and the network is switched off: {_cut(said)}")
    if "missing an upload date" in text:
        return DependencyUnavailable(
            "the package index does not say when its files were uploaded (PEP 700), so none of them can be shown to be "
            "old enough for --exclude-newer: use an index that says it, as pypi.org does, or leave the option out"
        )
    reasons = (
        (_SOURCE_ONLY, "source only: it has no wheel, and only wheels are installed"),
        (_OTHER_WHEELS, f"no wheel for this interpreter ({interpreter}); its wheels are for others"),
        (_TOO_NEW, f"no version for {interpreter} is as old as --exclude-newer asks for"),
    )
    for pattern, reason in reasons:
        found = pattern.search(said) or pattern.search(text)
        if found is not None:
            return DependencyUnavailable(f"{found[1]}: {reason}")
    if missing := _ABSENT.search(said):
        return DependencyUnavailable(f"{missing[1]}: {_NO_PROJECT}")
    return DependencyUnavailable(_cut(said) or "uv failed and printed nothing")


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


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


async def _ended(process: asyncio.subprocess.Process) -> tuple[bytes, int]:
    """Wait for a process; return the last part of what it printed, and its exit code."""
    assert process.stderr is not None
    held = bytearray()
    while chunk := await process.stderr.read(1 << 16):
        held += chunk
        del held[:-_OUTPUT]
    return bytes(held), await process.wait()


def _environment(sources: Sources, work: Path) -> dict[str, str]:
    """Return uv's variables. What it reads is copied, since nobody may not read everything that root may."""
    environment = {
        **{"PATH": os.defpath, "HOME": str(work), "TMPDIR": str(work)},
        **{"UV_PYTHON_DOWNLOADS": "never", "UV_HTTP_RETRIES": "1"},
        **sources.environment,
    }
    files = {
        "SSL_CERT_FILE": sources.certificates,
        "SSL_CLIENT_CERT": sources.client_certificate,
        "NETRC": sources.netrc,
    }
    for name, path in files.items():
        if path is None:
            continue
        if Path(path).is_dir():
            environment["SSL_CERT_DIR"] = str(path)
        else:
            environment[name] = str(shutil.copyfile(path, work / name.lower()))
    return environment


def _make_room(root: Path, cache: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    cache.mkdir(mode=0o700, exist_ok=True)
    drop_stale(root, "work-*")
    if os.geteuid() == 0:
        root.chmod(0o755)
        os.chown(cache, UNPRIVILEGED, UNPRIVILEGED)


def _give(work: Path, into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        into.parent.chmod(0o755)
        for path in (work, into, *work.iterdir()):
            os.chown(path, UNPRIVILEGED, UNPRIVILEGED)


def _executable(root: Path) -> str:
    """Return uv; for root a copy of it, since nobody may not be able to enter the folder where it is installed."""
    import uv

    found = Path(uv.find_uv_bin())
    if os.geteuid() != 0:
        return str(found)
    status = found.stat()
    copy = root / f"uv-{status.st_mtime_ns}-{status.st_size}"
    if not copy.exists():
        with replacing(copy) as new:
            shutil.copyfile(found, new)
            new.chmod(0o755)
    return str(copy)


def _readable(folder: str, work: Path) -> str:
    """Return a folder with these wheels that uv may read: as nobody it may not enter every folder that root may."""
    user = as_unprivileged()
    test = ["/bin/sh", "-c", 'test -r "$0" && test -x "$0"', folder]
    if (
        not user
        or not Path(folder).is_dir()
        or subprocess.run(test, cwd="/", env={}, check=False, **user).returncode == 0
    ):
        return folder
    place = Path(tempfile.mkdtemp(dir=work))
    for wheel in Path(folder).glob("*.whl"):
        shutil.copyfile(wheel, place / wheel.name)
    return str(place)


def _changed(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def drop_stale(folder: Path, pattern: str = "*") -> None:
    """Remove what installations left in a folder that were killed long ago."""
    for path in folder.glob(pattern):
        if _changed(path) < time.time() - _STALE:
            shutil.rmtree(path, ignore_errors=True)
