"""Dependency environments (stage 1 of the Bug Fixer): requirements become wheels, wheels become an environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class InterpreterTag:
    """The interpreter an environment is for: which wheels it can use. `libc` is `glibc` or `musl`."""

    version: str
    implementation: str = "cp"
    machine: str = "x86_64"
    libc: str = "glibc"
    libc_version: str = "2.36"


class Installer(Protocol):
    """Puts wheels into an environment that sandboxes of one backend can use. Keys are lower-case hexadecimal digits."""

    @property
    def interpreter(self) -> InterpreterTag:
        """The interpreter that sandboxes run; asked for only when something is built."""
        ...

    async def installed(self, key: str) -> tuple[str, ...] | None:
        """Return the lock (`name==version`, sorted) of a published environment, or None when there is none.

        Raises:
            SandboxError: the store cannot be read.
        """
        ...

    async def install(self, wheels: Sequence[Path], key: str) -> tuple[str, ...]:
        """Install wheels, all that is needed, in a throwaway sandbox without network; publish atomically under `key`.

        Returns the lock, as `installed` does. A key that was published meanwhile is left as it is.

        Raises:
            SandboxError: the builder broke.
            DependencyUnavailable: a wheel cannot be installed.
        """
        ...
