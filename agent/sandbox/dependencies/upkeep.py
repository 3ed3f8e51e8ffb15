"""Keeps a store of environments within its size: what was unused longest goes first, what is in use never."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from agent.sandbox.dependencies.leases import Leases


@dataclass(frozen=True)
class Stored:
    """An environment in a store: `size` in bytes, `used` when it was last asked for (seconds since the epoch)."""

    key: str
    installed: tuple[str, ...]
    size: int
    used: float


class Shelf(Protocol):
    """Where the environments of one backend are."""

    @property
    def leases(self) -> Leases:
        """Who uses which of them."""
        ...

    async def stored(self) -> list[Stored]:
        """Return every published environment.

        Raises:
            SandboxError: the store cannot be read.
        """
        ...

    async def remove(self, keys: Sequence[str]) -> None:
        """Remove environments that were claimed; each is gone as a whole or not at all.

        Raises:
            SandboxError: the store cannot be written.
        """
        ...


@runtime_checkable
class HasShelf(Protocol):
    """A backend with a store of its own."""

    @property
    def installer(self) -> Shelf:
        """Its store."""
        ...


async def shrink(shelf: Shelf, limit: int, *, pretend: bool = False) -> list[Stored]:
    """Remove environments, those unused longest first, until the rest takes no more than `limit` bytes.

    Returns those removed; with `pretend` those that would be.

    Raises:
        SandboxError: the store cannot be read or written.
    """
    stored = await shelf.stored()
    excess = sum(each.size for each in stored) - limit

    def enough(removed: Sequence[Stored]) -> bool:
        return sum(each.size for each in removed) >= excess

    return await discard(shelf, stored, enough, pretend=pretend)


async def discard(
    shelf: Shelf,
    unwanted: Sequence[Stored],
    enough: Callable[[Sequence[Stored]], bool] = lambda _removed: False,
    *,
    pretend: bool = False,
) -> list[Stored]:
    """Remove those of the unwanted environments that nobody uses, until it is enough; return them.

    Raises:
        SandboxError: the store cannot be written.
    """
    removed: list[Stored] = []
    with shelf.leases.claims() as claim:
        for each in sorted(unwanted, key=lambda stored: stored.used):
            if enough(removed):
                break
            if claim(each.key):
                removed.append(each)
        if removed and not pretend:
            await shelf.remove([each.key for each in removed])
            for each in removed:
                with suppress(OSError):  # what is known of its use is of no use any more
                    shelf.leases.forget(each.key)
    return removed
