"""`agent env`: lists and removes cached environments."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from agent.cli.interrupts import run_interruptible
from agent.cli.options import EnvOptions
from agent.cli.settings import ChosenSettings
from agent.cli.text import Console, one_line, print_json, print_text
from agent.config import SandboxConfig
from agent.errors import SandboxUnavailable, UsageError
from agent.sandbox.dependencies.npm import Npm
from agent.sandbox.dependencies.store import HasStore, Store, StoredEnvironment, discard, shrink
from agent.sandbox.dependencies.uv import Uv
from agent.sandbox.select import BACKENDS, BackendFactory, build_unavailable_error, choose
from agent.text import plural

_DAY = 24 * 3600.0
_MAX_NAMED = 4


class Entry(NamedTuple):
    """A cached environment, the name of its backend and the location of its store."""

    backend: str
    place: str
    stored: StoredEnvironment


def show(options: EnvOptions, *, as_json: bool, backends: Mapping[str, BackendFactory] = BACKENDS) -> None:
    """Print all cached environments, most recently used first.

    Raises:
        SandboxUnavailable: the selected backend (or, with `auto`, every backend) does not work on this machine.
        SandboxError: a store cannot be read.
    """
    config = ChosenSettings(Console(stderr=True), options).config.sandbox

    async def list_stores() -> list[tuple[str, str, list[StoredEnvironment]]]:
        async with _open_stores(config, backends) as stores:
            return [(name, store.location, await store.list_environments()) for name, store in stores]

    contents = run_interruptible(list_stores())
    entries = [Entry(name, place, environment) for name, place, stored in contents for environment in stored]
    _print(sorted(entries, key=lambda entry: -entry.stored.used_at), as_json=as_json)
    if as_json:
        return
    for name, place, stored in contents:
        print_text(Console(), f"{name}: {place}: {_summarise(stored)}")
    downloads = 0
    for tool in (Uv(), Npm()):
        downloads += (size := tool.measure_cache())
        print_text(Console(), f"downloads: {tool.cache}: {_format_size(size)}")
    print_text(Console(), f"total: {_format_size(downloads + sum(entry.stored.size for entry in entries))}")


def prune(
    options: EnvOptions,
    *,
    older_than: float | None,
    everything: bool,
    dry_run: bool,
    as_json: bool,
    backends: Mapping[str, BackendFactory] = BACKENDS,
) -> None:
    """Remove environments that are not in use, and print each with its size.

    Also empty the download cache if `everything` is set, or if it exceeds the size limit and `older_than` is None.

    Raises:
        UsageError: both `older_than` and `everything` are set, or neither is set and the cache has no limit.
        SandboxUnavailable: the selected backend (or, with `auto`, every backend) does not work on this machine.
        SandboxError: a store cannot be read or written.
    """
    if everything and older_than is not None:
        raise UsageError("--all and --older-than cannot be combined. Pass one of them.")
    config = ChosenSettings(Console(stderr=True), options).config.sandbox
    if older_than is None and not everything and not config.store_mb:
        raise UsageError("the cache has no size limit (sandbox.store_mb=0). Pass --older-than DAYS or --all.")
    limit = 0 if everything else config.store_mb << 20

    async def remove(store: Store) -> list[StoredEnvironment]:
        if older_than is None:
            return await shrink(store, limit, dry_run=dry_run)
        before = time.time() - older_than * _DAY
        return await discard(
            store, [entry for entry in await store.list_environments() if entry.used_at < before], dry_run=dry_run
        )

    async def remove_all() -> list[Entry]:
        async with _open_stores(config, backends) as stores:
            return [Entry(name, store.location, stored) for name, store in stores for stored in await remove(store)]

    removed = run_interruptible(remove_all())
    downloads = 0
    for tool in (Uv(), Npm()):
        size = tool.measure_cache() if older_than is None else 0
        downloads += size if size > limit else 0
        if size > limit and not dry_run:
            run_interruptible(tool.empty_cache())
    _print(removed, as_json=as_json)
    if as_json:
        return
    verb = "to remove" if dry_run else "removed"
    print_text(Console(), f"{verb}: {_summarise(entry.stored for entry in removed)}")
    if downloads:
        print_text(Console(), f"{verb}: {_format_size(downloads)} of downloads")


@asynccontextmanager
async def _open_stores(
    config: SandboxConfig, backends: Mapping[str, BackendFactory]
) -> AsyncIterator[list[tuple[str, Store]]]:
    """Open the store of the selected backend or, with `auto`, the stores of all backends that work."""
    report = partial(print_text, Console(stderr=True))
    names = list(backends) if config.backend == "auto" else [config.backend]
    refusals: dict[str, str] = {}
    stores: list[tuple[str, Store]] = []
    async with AsyncExitStack() as stack:
        for name in names:
            try:
                backend = await choose(
                    config.model_copy(update={"backend": name, "pool": 0, "requirements": None, "checkouts": None}),
                    report,
                    backends=backends,
                )
            except SandboxUnavailable as error:
                if config.backend != "auto":
                    raise
                report(f"{name} does not work on this machine: {one_line(str(error), limit=200)}")
                refusals[name] = str(error)
                continue
            stack.push_async_callback(backend.close)
            stores += [(backend.name, backend.store)] if isinstance(backend, HasStore) else []
        if len(refusals) == len(names):
            raise build_unavailable_error(refusals)
        yield stores


def _print(entries: Sequence[Entry], *, as_json: bool) -> None:
    if as_json:
        print_json([_as_json(*entry) for entry in entries])
        return
    console = Console()
    if entries:
        print_text(console, f"{'KEY':<12}  {'LAST USED':<16}  {'SIZE':>12}  {'BACKEND':<7}  PACKAGES")
    for entry in entries:
        print_text(console, _format_line(entry.backend, entry.stored))


def _format_line(backend: str, stored: StoredEnvironment) -> str:
    names = ", ".join(stored.installed[:_MAX_NAMED])
    more = len(stored.installed) - _MAX_NAMED
    packages = f"{names} and {more} more" if more > 0 else names
    used_at = datetime.fromtimestamp(stored.used_at, UTC).astimezone()
    return f"{stored.key[:12]:<12}  {used_at:%Y-%m-%d %H:%M}  {stored.size / 1e6:>9.1f} MB  {backend:<7}  {packages}"


def _summarise(stored: Iterable[StoredEnvironment]) -> str:
    sizes = [environment.size for environment in stored]
    return f"{plural(len(sizes), 'environment')}, {_format_size(sum(sizes))}"


def _format_size(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def _as_json(backend: str, place: str, stored: StoredEnvironment) -> dict[str, Any]:
    return {
        "key": stored.key,
        "backend": backend,
        "store": place,
        "installed": list(stored.installed),
        "size": stored.size,
        "used": datetime.fromtimestamp(stored.used_at, UTC).isoformat(timespec="seconds"),
    }
