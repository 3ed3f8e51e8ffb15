"""Environment stores: the interface that backends implement, leases on environments, and removal of unused ones.

Each environment has a lease file on the host, which sandboxes cannot access. A process that uses the environment
touches this file and acquires a shared lock on it. The kernel releases the lock when the process exits. Removing an
environment requires an exclusive lock.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from agent.sandbox.base import Notify
from agent.sandbox.interpreter import InterpreterTag

DEADLINE = 900.0
"""Seconds allowed for byte-compiling and publishing an environment."""

_POLL_SECONDS = 0.05
_MAX_OUTPUT = 16 << 20


class Leases:
    """One process's leases on environments in a store. `folder` returns the folder that contains the lease files.

    If the folder is not writable, environments are not protected. If another process removes an environment that is in
    use, the next program that starts in the environment detects the removal.
    """

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder
        self._leased: dict[str, tuple[int, int]] = {}

    async def acquire(self, key: str) -> None:
        """Protect an environment from removal until `release` has been called as often as `acquire`."""
        with suppress(OSError):
            while key not in self._leased and not self._lock(key):  # noqa: ASYNC110
                await asyncio.sleep(_POLL_SECONDS)  # no event signals that another process has released its lock
            descriptor, count = self._leased[key]
            self._leased[key] = descriptor, count + 1
            os.utime(descriptor, ns=(time.time_ns(),) * 2)  # timestamps that the kernel sets are too coarse

    def _lock(self, key: str) -> bool:
        """Acquire a shared lock on a lease file. Return False if another process is removing the environment."""
        path = self._folder() / key
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                return False
            raise
        self._leased[key] = descriptor, 0
        return True

    def release(self, key: str) -> None:
        """Release the lease that one call of `acquire` obtained."""
        if key in self._leased:
            descriptor, count = self._leased.pop(key)
            if count > 1:
                self._leased[key] = descriptor, count - 1
            else:
                os.close(descriptor)

    def close(self) -> None:
        """Release all leases."""
        for descriptor, _count in self._leased.values():
            os.close(descriptor)
        self._leased.clear()

    def find_last_use(self, key: str) -> float | None:
        """Return the time of the last `acquire` call on this host, in seconds since the epoch, or None if unknown."""
        try:
            return (self._folder() / key).stat().st_mtime
        except OSError:
            return None

    @contextmanager
    def open_claims(self) -> Iterator[Callable[[str], bool]]:
        """Yield a function that claims an environment for removal, and returns False if a process uses it.

        No process can acquire a claimed environment until the context exits.
        """
        with ExitStack() as stack:

            def claim(key: str) -> bool:
                try:
                    descriptor = os.open(self._folder() / key, os.O_RDWR)
                    stack.callback(os.close, descriptor)
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except FileNotFoundError:
                    return True  # never used on this host
                except OSError:
                    return False
                return True

            yield claim


@dataclass(frozen=True)
class StoredEnvironment:
    """An environment in a store.

    `size` is in bytes. `used_at` is the time of the last use, in seconds since the epoch.
    """

    key: str
    installed: tuple[str, ...]
    size: int
    used_at: float


class Store(ABC):
    """Interface for the environments of one backend. Keys are strings of lower-case hexadecimal digits.

    `python` is the host path of the interpreter that sandboxes run, or None if the interpreter is in an image.
    `on_wait` is called with a line of text for each wait, for example while packages are being installed.
    """

    leases: Leases
    python: str | None = None

    def __init__(self) -> None:
        self.on_wait: Notify = lambda _line: None

    @property
    @abstractmethod
    def location(self) -> str:
        """The folder or volume that contains the store, as shown to users."""

    @property
    @abstractmethod
    def interpreter(self) -> InterpreterTag:
        """The interpreter that sandboxes run.

        Raises:
            SandboxError: the backend has not been started.
        """

    @property
    @abstractmethod
    def staging(self) -> Path:
        """The host folder for packages that are being installed."""

    @abstractmethod
    async def find_lock(self, key: str) -> tuple[str, ...] | None:
        """Return a published environment's lock (sorted `name==version` entries), or None if the key is unknown.

        Raises:
            SandboxError: the store cannot be read.
        """

    @abstractmethod
    async def publish(self, tree: Path, key: str, lock: Sequence[str]) -> None:
        """Byte-compile an installed tree in a sandbox without network access and publish it atomically.

        `tree` must not be used afterwards. If another process has already published an environment with this key,
        that environment is kept.

        Raises:
            SandboxError: the sandbox failed, or the store cannot be written.
        """

    def forget(self, key: str) -> None:  # noqa: B027
        """Remove an environment from the in-memory cache, so that `find_lock` reads the store again."""

    @abstractmethod
    async def list_environments(self) -> list[StoredEnvironment]:
        """Return every published environment.

        Raises:
            SandboxError: the store cannot be read.
        """

    @abstractmethod
    async def remove(self, keys: Sequence[str]) -> None:
        """Remove claimed environments. Each removal is atomic.

        Raises:
            SandboxError: the store cannot be written.
        """


@runtime_checkable
class HasStore(Protocol):
    """A backend with an environment store."""

    store: Store


async def shrink(store: Store, limit: int, *, dry_run: bool = False) -> list[StoredEnvironment]:
    """Remove the least recently used environments until the store fits in `limit` bytes.

    Returns the removed environments. Environments in use are not removed. If `dry_run` is true, the store does not
    change, and the result lists the environments that would be removed.

    Raises:
        SandboxError: the store cannot be read or written.
    """
    environments = await store.list_environments()
    return await discard(
        store, environments, excess=sum(environment.size for environment in environments) - limit, dry_run=dry_run
    )


async def discard(
    store: Store, candidates: Sequence[StoredEnvironment], *, excess: float = math.inf, dry_run: bool = False
) -> list[StoredEnvironment]:
    """Remove the `candidates` that are not in use, least recently used first, until `excess` bytes are freed.

    Returns the removed environments. If `dry_run` is true, the store does not change.

    Raises:
        SandboxError: the store cannot be written.
    """
    removed: list[StoredEnvironment] = []
    with store.leases.open_claims() as claim:
        for environment in sorted(candidates, key=lambda environment: environment.used_at):
            if excess > sum(environment.size for environment in removed) and claim(environment.key):
                removed.append(environment)
        if removed and not dry_run:
            await store.remove([environment.key for environment in removed])
    return removed


async def read_result(reader: asyncio.StreamReader) -> dict[str, Any]:
    """Parse the last line of a builder's output as a JSON object. The output is untrusted.

    Raises:
        ValueError: the last line is not a JSON object, or the output is too long.
    """
    output = bytearray()
    while chunk := await reader.read(1 << 16):
        output += chunk
        if len(output) > _MAX_OUTPUT:
            raise ValueError(f"the output is longer than {_MAX_OUTPUT} bytes")
    try:
        value = json.loads(output.rstrip().rpartition(b"\n")[2])
    except RecursionError:
        raise ValueError("the result is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("the result is not a JSON object")
    return value


def parse_strings(value: object) -> tuple[str, ...]:
    """Validate a list of strings, such as a lock.

    Raises:
        ValueError: the value is not a list of strings.
    """
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError("not a list of strings")
    return tuple(value)
