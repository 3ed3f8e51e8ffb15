"""Selects the sandbox backend.

`auto` prefers bubblewrap because, with bubblewrap, runs annotate about twice as many pairs per second as with Docker.
However, `auto` prefers Docker if bubblewrap cannot limit the memory or CPU time of a whole sandbox, or cannot filter
system calls.
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
from agent.sandbox.base import Notify, SandboxBackend, SandboxLimits
from agent.sandbox.dependencies.checkouts import Checkouts
from agent.sandbox.dependencies.environments import DependencyPolicy
from agent.sandbox.dependencies.index_rule import IndexRule
from agent.sandbox.dependencies.npm import Npm, NpmRule
from agent.sandbox.dependencies.package_index import PackageIndex
from agent.sandbox.dependencies.requirements import read_requirements
from agent.sandbox.mounts import read_mounts
from agent.sandbox.registry import REGISTRY, suggest_remedy

BackendFactory = Callable[[SandboxConfig], SandboxBackend]

_REQUIRED = ("memory", "cpu", "seccomp")
"""The limits that `auto` requires. `inodes` is not required, because the memory limit also bounds the file count."""


def _build_backend(name: str, config: SandboxConfig, *, apply_rule: bool = True) -> SandboxBackend:
    entry = REGISTRY[name]
    if config.image is not None and not entry.runs_images:
        raise UsageError(f"sandbox.image={config.image}: {name} cannot run images. Pass --sandbox docker.")
    module, _, kind = entry.class_path.partition(":")
    backend: SandboxBackend = vars(import_module(module))[kind](
        build_limits(config),
        dependency_policy=build_dependency_policy(config)
        if apply_rule
        else replace(build_dependency_policy(config), rule=None, npm_rule=None),
        mounts=read_mounts(config.mount_ro),
        python=config.python,
        pool=config.pool,
        starts=config.starts,
        **({"image": config.image, "images": config.images} if entry.runs_images else {}),
    )
    return backend


BACKENDS: Mapping[str, BackendFactory] = {name: partial(_build_backend, name) for name in REGISTRY}
"""The backends' constructors, in the order in which `auto` prefers them."""

LOCKED_BACKENDS: Mapping[str, BackendFactory] = {
    name: partial(_build_backend, name, apply_rule=False) for name in REGISTRY
}
"""Constructors for replaying a locked run.

They do not check which packages may be installed (`sandbox.index_rule`), because this was checked when the lock was
written.
"""


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
    """Convert a backend's limits to settings. Returns an empty dictionary for a backend without limits."""
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


def build_dependency_policy(config: SandboxConfig) -> DependencyPolicy:
    """Convert settings to the dependency policy.

    Raises:
        UsageError: the requirements file or the folder of clones cannot be used, or a date is malformed.
    """
    base = () if config.requirements is None else read_requirements(Path(config.requirements))
    exclude_newer = None if config.exclude_newer is None else read_moment(config.exclude_newer)
    checkouts = None if config.checkouts is None else Checkouts(Path(config.checkouts))
    npm_rule = NpmRule(Npm() if config.index_rule and config.install_packages else None)
    return DependencyPolicy(
        config.install_packages, build_rule(config), npm_rule, config.store_mb << 20, base, exclude_newer, checkouts
    )


def read_moment(text: str) -> datetime:
    """Parse a date, with or without a time. A date without a time means the end of that day.

    The default time zone is UTC.

    Raises:
        UsageError: the text is neither a date nor a date and time.
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
        raise UsageError(f"{text!r} is not a date. Use a format such as 2016-12-31 or 2016-12-31T12:00:00Z.") from None


def build_rule(config: SandboxConfig) -> IndexRule:
    """Convert settings to the rule on which packages may be installed. The rule queries pip's indexes on first use."""
    return IndexRule(PackageIndex() if config.index_rule and config.install_packages else None)


async def choose(
    config: SandboxConfig, progress: Notify, *, backends: Mapping[str, BackendFactory] = BACKENDS
) -> SandboxBackend:
    """Return a started backend, which the caller must close.

    If a backend is selected by name, no other backend is used in its place.

    Raises:
        SandboxUnavailable: the selected backend does not work, or `auto` finds no backend that works.
        UsageError: the settings contradict each other, or the run's requirements cannot be installed.
    """
    backend = await _start(config, progress, backends)
    try:
        await _build_base_environment(backend)
    except BaseException:
        await backend.close()
        raise
    return backend


async def _build_base_environment(backend: SandboxBackend) -> None:
    """Build the environment that every program in the run needs. This happens before the run incurs costs."""
    if not backend.environments.base_requirements:
        return
    try:
        await backend.environments.build(())
    except (DependencyUnavailable, SandboxError) as error:
        raise UsageError(f"Cannot install the packages from --requirements: {error}") from error


async def _start(config: SandboxConfig, progress: Notify, backends: Mapping[str, BackendFactory]) -> SandboxBackend:
    if config.backend == "auto":
        return await _start_best(config, progress, backends)
    if config.backend not in backends:
        raise UsageError(f"Unknown sandbox {config.backend!r}. Choose one of auto, {', '.join(backends)}.")
    backend = backends[config.backend](config)
    await backend.start(progress)
    return backend


async def _start_best(
    config: SandboxConfig, progress: Notify, backends: Mapping[str, BackendFactory]
) -> SandboxBackend:
    """Start the first backend that enforces every required limit. If there is none, start the last one that works."""
    failures: dict[str, str] = {}
    rejections: list[str] = []
    working: list[SandboxBackend] = []
    try:
        for name in [name for name in backends if config.image is None or REGISTRY[name].runs_images]:
            backend = backends[name](config)
            try:
                await backend.start(progress)
            except SandboxUnavailable as error:
                failures[name] = str(error)
                rejections.append(f"{name} does not work: {str(error).splitlines()[0]}")
                continue
            working.append(backend)
            missing = find_missing_limits(backend.unenforced())
            if not missing:
                break
            rejections.append(f"{name} cannot enforce these limits on this machine: {', '.join(missing)}")
        if not working:
            raise build_unavailable_error(failures)
        chosen = working.pop()
        progress("; ".join([f"Using the {chosen.name} sandbox (selected by auto)", *rejections]))
        return chosen
    finally:
        for backend in working:
            await backend.close()


def find_missing_limits(unenforced: Collection[str]) -> list[str]:
    """Return the limits in `unenforced` that `auto` requires."""
    return [name for name in _REQUIRED if name in unenforced]


def build_unavailable_error(failures: Mapping[str, str]) -> SandboxUnavailable:
    """Build the error for a machine on which no backend works. `failures` maps each backend to the reason."""
    reasons = "\n".join(f"- {name}: {reason}" for name, reason in failures.items())
    remedies = "\n".join(f"- {name}: {suggest_remedy(name)}" for name in failures)
    return SandboxUnavailable(
        f"No sandbox works on this machine.\n{reasons}\nTo fix this, do one of the following:\n{remedies}"
    )
