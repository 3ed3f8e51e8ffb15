"""Chooses the backend: the one asked for, or with `auto` bubblewrap where all its limits hold, else Docker.

bubblewrap annotates about twice as many pairs per second as Docker. Where bubblewrap cannot limit the memory or the
processor time of a sandbox as a whole, or cannot filter system calls, `auto` prefers Docker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path

from agent.config import SandboxConfig
from agent.errors import DependencyUnavailable, SandboxError, SandboxUnavailable, UsageError
from agent.sandbox.base import Progress, SandboxBackend, SandboxLimits
from agent.sandbox.dependencies.environments import Supply
from agent.sandbox.dependencies.index_rule import IndexRule
from agent.sandbox.dependencies.package_index import PackageIndex
from agent.sandbox.dependencies.requirements import read_requirements
from agent.sandbox.mounts import read_mounts
from agent.sandbox.registry import REGISTRY, suggest_remedy

BackendFactory = Callable[[SandboxConfig], SandboxBackend]

_REQUIRED = ("memory", "cpu", "seccomp")
"""What `auto` demands. The number of files is not among them: a sandbox's memory limit bounds it too."""


def _build_backend(name: str, config: SandboxConfig, *, apply_rule: bool = True) -> SandboxBackend:
    entry = REGISTRY[name]
    if config.image is not None and not entry.runs_images:
        raise UsageError(f"--image {config.image}: {name} runs no images: name a sandbox that does, such as docker")
    module, _, kind = entry.class_path.partition(":")
    backend: SandboxBackend = vars(import_module(module))[kind](
        build_limits(config),
        supply=build_supply(config) if apply_rule else replace(build_supply(config), rule=None),
        mounts=read_mounts(config.mount_ro),
        python=config.python,
        pool=config.pool,
        starts=config.starts,
        **({"image": config.image, "images": config.images} if entry.runs_images else {}),
    )
    return backend


BACKENDS: Mapping[str, BackendFactory] = {name: partial(_build_backend, name) for name in REGISTRY}
"""What makes each backend, in the order in which `auto` tries them."""

LOCKED_BACKENDS: Mapping[str, BackendFactory] = {
    name: partial(_build_backend, name, apply_rule=False) for name in REGISTRY
}
"""The same for a run's lock: what it names was judged by the rule when it was made, or came with what was."""


def build_limits(config: SandboxConfig) -> SandboxLimits:
    """Convert settings to the limits of one sandbox."""
    return SandboxLimits(
        memory=config.memory_mb << 20,
        processes=config.processes,
        cpus=config.cpus,
        files=config.files_mb << 20,
        output=config.output_kb << 10,
        inodes=config.inodes,
    )


def limits_as_settings(limits: SandboxLimits | None) -> dict[str, int | float]:
    """Convert a backend's limits to settings; {} for a backend without limits."""
    if limits is None:
        return {}
    return {
        "memory_mb": limits.memory >> 20,
        "processes": limits.processes,
        "cpus": limits.cpus,
        "files_mb": limits.files >> 20,
        "output_kb": limits.output >> 10,
        "inodes": limits.inodes,
    }


def build_supply(config: SandboxConfig) -> Supply:
    """Return what a configuration means about dependencies.

    Raises:
        UsageError: the requirements file cannot be used, or a date is none.
    """
    base = () if config.requirements is None else read_requirements(Path(config.requirements))
    exclude_newer = None if config.exclude_newer is None else read_moment(config.exclude_newer)
    return Supply(config.network_for_builds, build_rule(config), config.store_mb << 20, base, exclude_newer)


def read_moment(text: str) -> datetime:
    """Parse a day, which means its end, or a moment. Both are in UTC unless the text names a time zone.

    Raises:
        UsageError: the text is neither a day nor a moment.
    """
    text = text.strip()
    try:
        return datetime.combine(date.fromisoformat(text) + timedelta(days=1), time(), UTC)
    except (ValueError, OverflowError):
        pass
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"{text!r} is no date: expected one such as 2016-12-31 or 2016-12-31T12:00:00Z") from None


def build_rule(config: SandboxConfig) -> IndexRule:
    """Return the rule for what may be fetched that a configuration means; it asks pip's indexes on first need."""
    return IndexRule(PackageIndex() if config.index_rule and config.network_for_builds else None)


async def choose(
    config: SandboxConfig, progress: Progress, *, backends: Mapping[str, BackendFactory] = BACKENDS
) -> SandboxBackend:
    """Return a started backend; the caller closes it. A backend asked for by name is never replaced by another.

    Raises:
        SandboxUnavailable: the one asked for does not work, or with `auto` none does; says why and what to do.
        UsageError: the settings contradict each other, or the run's own requirements cannot be had.
    """
    backend = await _start(config, progress, backends)
    try:
        await _build_base_environment(backend)
    except BaseException:
        await backend.close()
        raise
    return backend


async def _build_base_environment(backend: SandboxBackend) -> None:
    """Build what every program of the run is to have, before anything is spent on it."""
    if not backend.environments.base_requirements:
        return
    try:
        await backend.environments.build(())
    except (DependencyUnavailable, SandboxError) as error:
        raise UsageError(f"what --requirements asks for cannot be had: {error}") from error


async def _start(config: SandboxConfig, progress: Progress, backends: Mapping[str, BackendFactory]) -> SandboxBackend:
    if config.backend == "auto":
        return await _start_first_suitable(config, progress, backends)
    if config.backend not in backends:
        raise UsageError(f"there is no sandbox {config.backend!r}; there are: auto, {', '.join(backends)}")
    backend = backends[config.backend](config)
    await backend.start(progress)
    return backend


async def _start_first_suitable(
    config: SandboxConfig, progress: Progress, backends: Mapping[str, BackendFactory]
) -> SandboxBackend:
    """Start backends in order until one enforces every limit; where none does, take the last one that works."""
    refusals: dict[str, str] = {}
    passed_over: list[str] = []
    working: list[SandboxBackend] = []
    try:
        for name in [name for name in backends if config.image is None or REGISTRY[name].runs_images]:
            backend = backends[name](config)
            try:
                await backend.start(progress)
            except SandboxUnavailable as error:
                refusals[name] = str(error)
                passed_over.append(f"{name} does not work: {str(error).splitlines()[0]}")
                continue
            working.append(backend)
            missing = find_missing_limits(backend.unenforced())
            if not missing:
                break
            passed_over.append(f"{name} cannot enforce these limits here: {', '.join(missing)}")
        if not working:
            raise build_unavailable_error(refusals)
        chosen = working.pop()
        progress("; ".join([f"The sandbox is {chosen.name}, chosen by auto", *passed_over]))
        return chosen
    finally:
        for backend in working:
            await backend.close()


def find_missing_limits(unenforced: Collection[str]) -> list[str]:
    """Return the limits in `unenforced` for which `auto` rejects a backend."""
    return [name for name in _REQUIRED if name in unenforced]


def build_unavailable_error(refusals: Mapping[str, str]) -> SandboxUnavailable:
    """Return the error for a machine on which each backend gave a reason why it does not work."""
    reasons = "\n".join(f"- {name}: {why}" for name, why in refusals.items())
    todo = "\n".join(f"- {name}: {suggest_remedy(name)}" for name in refusals)
    return SandboxUnavailable(f"No sandbox works on this machine.\n{reasons}\nWhat to do:\n{todo}")
