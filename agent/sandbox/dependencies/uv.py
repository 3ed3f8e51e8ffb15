"""Installs wheels with uv in a host subprocess. No package code runs, because only wheels are accepted.

uv receives the host's package-source settings (`sources.py`) but none of this process's other environment variables.
uv's cache is in test-driven-annotator's cache folder.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from packaging.utils import canonicalize_name
from uv import find_uv_bin

from agent.errors import DependencyUnavailable
from agent.sandbox.dependencies.package_index import REFUSED, UNREACHABLE
from agent.sandbox.dependencies.sources import PackageSources, read_sources
from agent.sandbox.dependencies.tool import HostTool
from agent.sandbox.folders import get_shared_cache
from agent.sandbox.interpreter import InterpreterTag, find_interpreter

_STALE_SECONDS = 24 * 3600.0
_MAX_MESSAGE_LENGTH = 600
_GLIBC = (40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 17)
"""Minor versions of glibc 2 for which uv has a platform name."""

_UNREACHABLE = re.compile(r"Request failed|Failed to fetch|error sending request|timed out|dns error|HTTP status", re.I)
_REFUSED = re.compile(r"\b(401 Unauthorized|403 Forbidden|407 Proxy)")


@dataclass(frozen=True)
class Target:
    """The interpreter and the platform for which packages are installed.

    `python` is the host path of the interpreter that sandboxes run, or None if the interpreter is in an image. Files
    uploaded to an index at `exclude_newer` or later are ignored.
    """

    tag: InterpreterTag
    python: str | None = None
    exclude_newer: datetime | None = None

    def as_options(self) -> list[str]:
        """Return uv's command-line options for this target.

        Raises:
            DependencyUnavailable: uv does not support the platform or the Python implementation.
        """
        platform = _find_platform(self.tag)
        if self.python is None and (platform is None or self.tag.implementation != "cp"):
            raise DependencyUnavailable(
                f"packages cannot be installed for {self.tag}: only CPython on known platforms is supported"
            )
        options = ["--python", self.python or find_interpreter().path]
        options += ["--python-version", self.tag.full or self.tag.version]
        options += [] if platform is None else ["--python-platform", platform]
        return options if self.exclude_newer is None else [*options, "--exclude-newer", self.exclude_newer.isoformat()]


def _find_platform(tag: InterpreterTag) -> str | None:
    if tag.machine not in ("x86_64", "aarch64"):
        return None
    if tag.libc == "musl":
        return f"{tag.machine}-unknown-linux-musl"
    minor = int(tag.libc_version.split(".")[1])
    glibc_minor = next((minor_version for minor_version in _GLIBC if minor_version <= minor), None)
    return None if glibc_minor is None else f"{tag.machine}-manylinux_2_{glibc_minor}"


class Uv(HostTool):
    """Runs uv with a cache in the folder `root`. All runs share the default folder."""

    def __init__(
        self,
        root: Path | None = None,
        *,
        sources: Callable[[], PackageSources] = read_sources,
        seconds: float = 900.0,
        min_free: int = 1 << 30,
    ) -> None:
        super().__init__(root or get_shared_cache() / "uv", seconds, min_free)
        self.sources = sources

    async def install(
        self, requirements: Sequence[str], target: Target, into: Path, *, offline: bool = False
    ) -> tuple[str, ...]:
        """Install requirements and their dependencies into a new folder.

        Returns the lock: the installed packages as sorted `name==version` entries.

        If `offline` is true, or if no index responds, uv installs from its cache and from local folders.

        Raises:
            DependencyUnavailable: no index responds, versions conflict, a wheel is missing, the installation times out,
                or the disk is almost full.
            SandboxError: uv cannot be started, or is killed.
        """
        with self.convert_errors():
            exit_code, text = await self._run(requirements, target, into, offline)
            if exit_code == 2 and not offline and _UNREACHABLE.search(text):
                offline_exit_code, _text = await self._run(requirements, target, into, True)
                exit_code = 0 if offline_exit_code == 0 else exit_code
        if exit_code > 0:
            raise build_error(text)
        return await asyncio.to_thread(_clean_tree, into)

    async def _run(self, requirements: Sequence[str], target: Target, into: Path, offline: bool) -> tuple[int, str]:
        """Run uv once. Return its exit code and stderr."""
        for folder in (self.cache, into):
            await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        sources = await asyncio.to_thread(self.sources)
        command = [
            find_uv_bin(), "pip", "install", "--no-config", "--no-progress", "--color", "never",
            "--target", str(into), "--cache-dir", str(self.cache), "--link-mode", "copy",
            "--only-binary", ":all:", "--index-strategy", "first-index",
        ]  # fmt: skip
        command += await asyncio.to_thread(target.as_options)
        command += [] if sources.indexes else ["--no-index"]
        command += [f"--find-links={folder}" for folder in sources.folders]
        command += ["--offline"] if offline else []
        home = {"PATH": os.defpath, "HOME": str(self.root), "UV_PYTHON_DOWNLOADS": "never", "UV_HTTP_RETRIES": "1"}
        environment = {**home, **sources.environment}
        exit_code, _output, text = await self.watch([*command, "--", *requirements], environment, self.root, into)
        return exit_code, text

    async def clean_up(self) -> None:
        """Remove partly unpacked files, which a killed uv process may have left in the cache."""
        await self._manage_cache("prune")

    async def empty_cache(self) -> None:
        """Wait for running installations, then empty the cache. All cached files can be downloaded again."""
        await self._manage_cache("clean")

    async def _manage_cache(self, verb: str) -> None:
        command = [find_uv_bin(), "cache", verb, "--no-config", "--quiet", "--cache-dir", str(self.cache)]
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
        await process.wait()


def build_error(text: str) -> DependencyUnavailable:
    """Build an error from the output of a uv process that failed."""
    if _REFUSED.search(text):
        return DependencyUnavailable(REFUSED, temporary=True)
    if _UNREACHABLE.search(text):
        return DependencyUnavailable(UNREACHABLE, temporary=True)
    if "missing an upload date" in text:
        return DependencyUnavailable(
            "the package index does not report upload times (PEP 700), which sandbox.exclude_newer needs. "
            "Use an index that reports them, such as pypi.org, or omit the option."
        )
    # hints suggest uv options that users cannot set here
    message, _, hints = (text.partition("error: ")[2] or text).partition("\nhint: ")
    message = " ".join(message.split()).removeprefix("No solution found when resolving dependencies cause: ")[
        :_MAX_MESSAGE_LENGTH
    ]
    if "network was disabled" in hints:
        message = f"not in the download cache, and network access is disabled: {message}"
    if "filtered by `exclude-newer`" in hints:
        message = f"no version was uploaded before the date of sandbox.exclude_newer: {message}"
    return DependencyUnavailable(message or "uv failed without an error message")


def _clean_tree(tree: Path) -> tuple[str, ...]:
    """Remove uv's own files from an installed tree and return the tree's lock."""
    shutil.rmtree(tree / "bin", ignore_errors=True)
    (tree / ".lock").unlink(missing_ok=True)
    names = (path.name.removesuffix(".dist-info").rpartition("-") for path in tree.glob("*.dist-info"))
    return tuple(sorted(f"{canonicalize_name(name)}=={version}" for name, _, version in names))


def remove_stale(folder: Path) -> None:
    """Remove entries older than a day from a staging folder. Installations that were killed leave entries behind."""
    for path in folder.glob("*"):
        with suppress(FileNotFoundError):
            if path.lstat().st_mtime < time.time() - _STALE_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
