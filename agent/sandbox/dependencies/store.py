"""Stores of environments: the part that all backends share, leases on environments, and removal.

Leases are files of the host that no sandbox sees, one per environment. A process that uses the environment holds a
shared lock on the file, which ends with the process, and touches it. A process that removes it holds the lock alone.
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

from agent.sandbox.base import Progress
from agent.sandbox.interpreter import InterpreterTag

DEADLINE = 900.0
"""Seconds that finishing an environment may take."""

_POLL_SECONDS = 0.05
_MAX_OUTPUT = 16 << 20


class Leases:
    """One process's leases on the environments of a store, in a `folder` that is computed on use.

    Where the folder cannot be written there are no leases. An environment that another process removes is then found
    to be gone when a program is to run in it.
    """

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder
        self._leased: dict[str, tuple[int, int]] = {}

    async def acquire(self, key: str) -> None:
        """Keep an environment from being removed until it is released as often as it was acquired."""
        with suppress(OSError):
            while key not in self._leased and not self._lock(key):  # noqa: ASYNC110
                await asyncio.sleep(_POLL_SECONDS)  # no event tells of another process's lock
            descriptor, count = self._leased[key]
            self._leased[key] = descriptor, count + 1
            os.utime(descriptor, ns=(time.time_ns(),) * 2)  # the kernel's own clock for files is coarse

    def _lock(self, key: str) -> bool:
        """Lock an environment's file for use; return False while another process removes the environment."""
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
        """Undo one `acquire`."""
        if key in self._leased:
            descriptor, count = self._leased.pop(key)
            if count > 1:
                self._leased[key] = descriptor, count - 1
            else:
                os.close(descriptor)

    def close(self) -> None:
        """Release everything."""
        for descriptor, _count in self._leased.values():
            os.close(descriptor)
        self._leased.clear()

    def find_last_use(self, key: str) -> float | None:
        """Return when an environment was last acquired on this host, in seconds since the epoch, or None."""
        try:
            return (self._folder() / key).stat().st_mtime
        except OSError:
            return None

    @contextmanager
    def open_claims(self) -> Iterator[Callable[[str], bool]]:
        """Yield a function that claims an environment for removal; nobody can acquire it until the context ends.

        It returns False for an environment that this process or another uses.
        """
        with ExitStack() as stack:

            def claim(key: str) -> bool:
                try:
                    descriptor = os.open(self._folder() / key, os.O_RDWR)
                    stack.callback(os.close, descriptor)
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except FileNotFoundError:
                    return True  # nobody on this host has used it
                except OSError:
                    return False
                return True

            yield claim


@dataclass(frozen=True)
class StoredEnvironment:
    """An environment in a store: `size` in bytes, `used` when it was last asked for (seconds since the epoch)."""

    key: str
    installed: tuple[str, ...]
    size: int
    used_at: float


class Store(ABC):
    """The environments of one backend. Keys are lower-case hexadecimal digits.

    `python` is the path of the sandboxes' interpreter on this host, or None if an image has it. `waits` receives a line
    about what work waits for.
    """

    leases: Leases
    python: str | None = None

    def __init__(self) -> None:
        self.on_wait: Progress = lambda _line: None

    @property
    @abstractmethod
    def place(self) -> str:
        """The folder or volume that holds the store, as shown to users."""

    @property
    @abstractmethod
    def interpreter(self) -> InterpreterTag:
        """The interpreter that sandboxes run.

        Raises:
            SandboxError: the backend was not started.
        """

    @property
    @abstractmethod
    def staging(self) -> Path:
        """The folder of this host for trees that are being installed."""

    @abstractmethod
    async def find_lock(self, key: str) -> tuple[str, ...] | None:
        """Return the lock (`name==version`, sorted) of a published environment, or None when there is none.

        Raises:
            SandboxError: the store cannot be read.
        """

    @abstractmethod
    async def publish(self, tree: Path, key: str, lock: Sequence[str]) -> None:
        """Byte-compile an installed tree in a sandbox without network and publish it in one step; consumes `tree`.

        Does nothing if another process published the key meanwhile.

        Raises:
            SandboxError: the sandbox broke, or the store cannot be written.
        """

    def forget(self, key: str) -> None:  # noqa: B027
        """Drop what is cached about an environment, so that `installed` looks again."""

    @abstractmethod
    async def list_environments(self) -> list[StoredEnvironment]:
        """Return every published environment.

        Raises:
            SandboxError: the store cannot be read.
        """

    @abstractmethod
    async def remove(self, keys: Sequence[str]) -> None:
        """Remove claimed environments, each in one step.

        Raises:
            SandboxError: the store cannot be written.
        """


@runtime_checkable
class HasStore(Protocol):
    """A backend with a store of its own."""

    store: Store


async def shrink(store: Store, limit: int, *, dry_run: bool = False) -> list[StoredEnvironment]:
    """Remove the least recently used environments until the rest fits `limit` bytes; return the removed ones.

    With `pretend` nothing is removed, and the return value is what would be.

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
    """Remove unwanted environments that nobody uses until `excess` bytes are freed; return the removed ones.

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
    """Parse the last line of a builder's output as a JSON object. The output is hostile.

    Raises:
        ValueError: the last line is no JSON object, or the output is too long.
    """
    output = bytearray()
    while chunk := await reader.read(1 << 16):
        output += chunk
        if len(output) > _MAX_OUTPUT:
            raise ValueError(f"more than {_MAX_OUTPUT} bytes")
    try:
        value = json.loads(output.rstrip().rpartition(b"\n")[2])
    except RecursionError:
        raise ValueError("an answer nested too deep") from None
    if not isinstance(value, dict):
        raise ValueError("an answer that is no object")
    return value


def parse_strings(value: object) -> tuple[str, ...]:
    """Validate a list of texts, such as a lock.

    Raises:
        ValueError: the value is no list of texts.
    """
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError("no list of texts")
    return tuple(value)
