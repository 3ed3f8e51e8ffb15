"""Runs package managers in host subprocesses, with limits on time and disk space."""

from __future__ import annotations

import asyncio
import math
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from agent.errors import DependencyUnavailable, SandboxError

_POLL_SECONDS = 0.5
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?", re.DOTALL)
_WORD = re.compile(r"\S+")


class HostTool:
    """A package manager with a cache in the folder `root`.

    An installation is stopped after `seconds`, or when a disk that it writes to has fewer than `min_free` bytes left.
    If `max_bytes` is not 0, it is also stopped when the installed files exceed this size.
    """

    def __init__(self, root: Path, seconds: float, min_free: int, max_bytes: int = 0) -> None:
        self.root = root
        self.cache = root / "cache"
        self._seconds = seconds
        self._min_free = min_free
        self._max_bytes = max_bytes

    @contextmanager
    def convert_errors(self) -> Iterator[None]:
        """Raise a `SandboxError` for an error of this machine, such as a full disk."""
        try:
            yield
        except OSError as error:
            raise SandboxError(f"cannot install packages on this machine: {error}") from error

    async def watch(
        self, command: Sequence[str], environment: Mapping[str, str], folder: Path, into: Path
    ) -> tuple[int, str, str]:
        """Run a command in a folder. Return its exit code, its output, and its errors without secrets.

        Raises:
            DependencyUnavailable: the installation into the folder `into` exceeded a limit.
            SandboxError: the command was killed.
            OSError: the command cannot be started.
        """
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        communication = asyncio.ensure_future(process.communicate())
        deadline = time.monotonic() + self._seconds
        problem = None
        try:
            while not communication.done() and (problem := await self.find_problem(into, deadline)) is None:
                await asyncio.wait({communication}, timeout=_POLL_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = await asyncio.shield(communication)
        if problem is not None:
            await self.clean_up()
            raise DependencyUnavailable(problem)
        assert process.returncode is not None
        if process.returncode < 0:
            raise SandboxError(f"{Path(command[0]).name} was killed by signal {-process.returncode}")
        return process.returncode, stdout.decode("utf-8", "replace"), mask_secrets(stderr.decode("utf-8", "replace"))

    async def clean_up(self) -> None:
        """Repair the cache after an installation was killed."""

    async def find_problem(self, into: Path, deadline: float = math.inf) -> str | None:
        """Return the limit that an installation exceeds, or None."""
        if time.monotonic() > deadline:
            return f"the installation exceeded the time limit of {self._seconds:g} seconds for one environment"
        if min(shutil.disk_usage(folder).free for folder in (self.cache, into)) < self._min_free:
            return f"the installation was stopped because the disk has less than {self._min_free >> 20} MB left"
        if self._max_bytes and await asyncio.to_thread(_measure, into) > self._max_bytes:
            return f"the packages are larger than {self._max_bytes >> 20} MB"
        return None

    def measure_cache(self) -> int:
        """Return the size of the cache in bytes."""
        return _measure(self.cache)


def _measure(folder: Path) -> int:
    size = 0
    for parent, _folders, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += Path(parent, name).lstat().st_size
    return size


def mask_secrets(text: str) -> str:
    """Remove escape sequences and control characters from a text, and mask credentials in its URLs."""
    text = _ESCAPE.sub("", text).replace("\r\n", "\n")
    text = "".join(character if character.isprintable() or character in "\n\t" else " " for character in text)
    return _WORD.sub(_mask_secret, text)


def _mask_secret(word: re.Match[str]) -> str:
    # mask everything up to the last @, because unquoted passwords may contain / or @
    scheme, separator, rest = word[0].partition("://")
    _secret, at, host = rest.rpartition("@")
    return f"{scheme}{separator}***@{host}" if at else word[0]
