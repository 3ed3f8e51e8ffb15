"""`agent env`: the dependency environments that are kept from run to run."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

from agent.cli.interrupts import run_interruptible
from agent.cli.options import EnvOptions
from agent.cli.settings import ChosenSettings
from agent.cli.text import Console, one_line, print_json, say
from agent.config import SandboxConfig
from agent.errors import SandboxUnavailable, UsageError
from agent.sandbox.base import SandboxBackend
from agent.sandbox.dependencies.store import HasStore, Store, Stored, discard, shrink
from agent.sandbox.dependencies.uv import Uv
from agent.sandbox.select import BACKENDS, Make, choose, none_works
from agent.wording import counted

_DAY = 24 * 3600.0
_NAMED = 4
Found = tuple[str, str, Stored]
"""A backend's name, where its store is, and an environment in it."""


def show(options: EnvOptions, *, as_json: bool, backends: Mapping[str, Make] = BACKENDS) -> None:
    """Print every environment, those used last first.

    Raises:
        SandboxUnavailable: the backend asked for does not work here, or none does.
        SandboxError: a store cannot be read.
    """
    config = ChosenSettings(Console(stderr=True), options).config.sandbox

    async def look() -> list[Found]:
        async with _stores(config, backends) as stores:
            places.update((name, store.place) for name, store in stores)
            return [(name, store.place, each) for name, store in stores for each in await store.stored()]

    places: dict[str, str] = {}
    found = sorted(run_interruptible(look()), key=lambda each: -each[2].used)
    if as_json:
        print_json([_as_json(*each) for each in found])
        return
    _print(found)
    for name, place in places.items():
        own = [each for each in found if each[0] == name]
        say(Console(), f"{name}: {place}: {_sum(own)}")
    uv = Uv()
    downloads = uv.size()
    say(Console(), f"downloads: {uv.cache}: {_megabytes(downloads)}")
    say(Console(), f"total: {_megabytes(downloads + sum(each.size for *_, each in found))}")


def prune(
    options: EnvOptions,
    *,
    older_than: float | None,
    everything: bool,
    dry_run: bool,
    as_json: bool,
    backends: Mapping[str, Make] = BACKENDS,
) -> None:
    """Remove environments that nobody uses and print them, and the room they took.

    With `everything` so are the downloads that they were made of, and without an age where these exceed the limit.

    Raises:
        UsageError: both an age and everything were asked for.
        SandboxUnavailable: the backend asked for does not work here, or none does.
        SandboxError: a store cannot be read or written.
    """
    if everything and older_than is not None:
        raise UsageError("--all and --older-than ask for different things: give one of them")
    config = ChosenSettings(Console(stderr=True), options).config.sandbox
    if older_than is None and not everything and not config.store_mb:
        raise UsageError("there is no limit to shrink to (sandbox.store_mb=0): say --older-than DAYS or --all")
    days = 0.0 if everything else older_than

    async def remove() -> list[Found]:
        async with _stores(config, backends) as stores:
            return [
                (name, store.place, each)
                for name, store in stores
                for each in await _prune(store, days, config.store_mb << 20, pretend=dry_run)
            ]

    removed = run_interruptible(remove())
    freed = 0 if older_than is not None else _prune_downloads(config.store_mb << 20, everything, pretend=dry_run)
    if as_json:
        print_json([_as_json(*each) for each in removed])
        return
    _print(removed)
    done = "to remove" if dry_run else "removed"
    say(Console(), f"{done}: {_sum(removed)}")
    if freed:
        say(Console(), f"{done}: {_megabytes(freed)} of downloads")


def _prune_downloads(limit: int, everything: bool, *, pretend: bool) -> int:
    uv = Uv()
    size = uv.size()
    if not everything and (not limit or size <= limit):
        return 0
    if not pretend:
        run_interruptible(uv.clean())
    return size


async def _prune(store: Store, days: float | None, limit: int, *, pretend: bool) -> list[Stored]:
    if days is None:
        return await shrink(store, limit, pretend=pretend) if limit else []
    before = time.time() - days * _DAY
    unwanted = [each for each in await store.stored() if not days or each.used < before]
    return await discard(store, unwanted, pretend=pretend)


@asynccontextmanager
async def _stores(config: SandboxConfig, backends: Mapping[str, Make]) -> AsyncIterator[list[tuple[str, Store]]]:
    """Give the store of the backend asked for, with `auto` of each that works."""
    report = partial(say, Console(stderr=True))
    config = config.model_copy(update={"pool": 0})
    async with AsyncExitStack() as ends:
        found: list[SandboxBackend] = []
        refusals: dict[str, str] = {}
        for name, make in backends.items() if config.backend == "auto" else ():
            backend = make(config)
            try:
                await backend.start(report)
            except SandboxUnavailable as error:
                report(f"{name} does not work here: {one_line(str(error), limit=200)}")
                refusals[name] = str(error)
                continue
            ends.push_async_callback(backend.close)
            found.append(backend)
        if config.backend != "auto":
            found.append(await choose(config, report, backends=backends))
            ends.push_async_callback(found[0].close)
        elif not found:
            raise none_works(refusals)
        yield [(backend.name, backend.store) for backend in found if isinstance(backend, HasStore)]


def _print(found: Sequence[Found]) -> None:
    console = Console()
    if found:
        say(console, f"{'KEY':<12}  {'LAST USED':<16}  {'SIZE':>12}  {'BACKEND':<7}  PACKAGES")
    for each in found:
        say(console, _line(*each))


def _line(backend: str, _place: str, stored: Stored) -> str:
    names = ", ".join(stored.installed[:_NAMED])
    more = len(stored.installed) - _NAMED
    packages = f"{names} and {more} more" if more > 0 else names
    used = datetime.fromtimestamp(stored.used, UTC).astimezone()
    return f"{stored.key[:12]:<12}  {used:%Y-%m-%d %H:%M}  {stored.size / 1e6:>9.1f} MB  {backend:<7}  {packages}"


def _sum(found: Sequence[Found]) -> str:
    return f"{counted(len(found), 'environment')}, {_megabytes(sum(stored.size for *_, stored in found))}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def _as_json(backend: str, place: str, stored: Stored) -> dict[str, Any]:
    used = datetime.fromtimestamp(stored.used, UTC).isoformat(timespec="seconds")
    return {
        "key": stored.key,
        "backend": backend,
        "store": place,
        "installed": list(stored.installed),
        "size": stored.size,
        "used": used,
    }
