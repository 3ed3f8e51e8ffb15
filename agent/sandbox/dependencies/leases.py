"""Who uses which environment, and when each was used last, in files of the host that no sandbox sees.

A file per environment: whoever uses it holds a shared lock on the file, which ends with the process however that dies,
and touches it; whoever removes the environment holds the lock alone.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_AGAIN = 0.05


class Leases:
    """One process's leases on the environments of a store. `folder`, asked for on use, is where its users meet.

    Where the folder cannot be written there are no leases: nothing is removed from here, and an environment that
    another process removes is found to be gone when a program is to run in it.
    """

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder
        self._held: dict[str, tuple[int, int]] = {}

    async def take(self, key: str) -> None:
        """Keep an environment from being removed until it is given back as often as it was taken."""
        if key not in self._held:
            with suppress(OSError):
                descriptor = await self._shared(key)
                if key in self._held:
                    os.close(descriptor)
                else:
                    self._held[key] = descriptor, 0
        if key in self._held:
            descriptor, count = self._held[key]
            self._held[key] = descriptor, count + 1
            os.utime(descriptor, ns=(time.time_ns(),) * 2)  # the kernel's own clock for files is coarse

    async def _shared(self, key: str) -> int:
        while True:
            descriptor = self._locked(key, fcntl.LOCK_SH)
            if descriptor is not None:
                return descriptor
            await asyncio.sleep(_AGAIN)

    def give_back(self, key: str) -> None:
        """Undo one `take`."""
        if key in self._held:
            descriptor, count = self._held.pop(key)
            if count > 1:
                self._held[key] = descriptor, count - 1
            else:
                os.close(descriptor)

    def close(self) -> None:
        """Give everything back."""
        for descriptor, _count in self._held.values():
            os.close(descriptor)
        self._held.clear()

    def used(self, key: str) -> float | None:
        """Return when an environment was last taken on this host, in seconds since the epoch, or None."""
        try:
            return (self._folder() / key).stat().st_mtime
        except OSError:
            return None

    def forget(self, key: str) -> None:
        """Remove what is known of the use of an environment that was claimed and is gone."""
        (self._folder() / key).unlink(missing_ok=True)

    @contextmanager
    def claims(self) -> Iterator[Callable[[str], bool]]:
        """Give a function that claims an environment for removal; until the end nobody else can take a claimed one.

        It returns False for one that is in use, by this process or another.
        """
        with ExitStack() as ends:

            def claim(key: str) -> bool:
                path = self._folder() / key
                unknown = not path.exists()
                try:
                    descriptor = self._locked(key, fcntl.LOCK_EX)
                except OSError:
                    return False
                if descriptor is None:
                    return False
                ends.callback(os.close, descriptor)
                if unknown:
                    ends.callback(path.unlink, missing_ok=True)  # it is a use to nobody else
                return True

            yield claim

    def _locked(self, key: str, kind: int) -> int | None:
        """Return a descriptor of the environment's file, locked; None while others do not let it be.

        Raises:
            OSError: the folder cannot be written.
        """
        path = self._folder() / key
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            # a lock on a file that was removed meanwhile is one that nobody else sees
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                return descriptor
        except (BlockingIOError, FileNotFoundError):
            pass
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None
