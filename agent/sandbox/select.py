"""Chooses the backend: the one asked for, or with `auto` Docker where an engine answers, else bubblewrap."""

from __future__ import annotations

import platform
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from agent.config import SandboxConfig
from agent.errors import DependencyUnavailable, SandboxError, SandboxUnavailable, UsageError
from agent.sandbox.base import Limited, Limits, Progress, SandboxBackend
from agent.sandbox.dependencies.environments import Supply
from agent.sandbox.dependencies.index_rule import IndexRule
from agent.sandbox.dependencies.package_index import PackageIndex
from agent.sandbox.dependencies.project_cache import ProjectCache
from agent.sandbox.dependencies.requirements_file import read_requirements
from agent.sandbox.dependencies.wheel_cache import default_cache
from agent.sandbox.eras import Eras
from agent.sandbox.moments import read_moment
from agent.sandbox.mounts import read_mounts

_ERA_POOL = 1
Make = Callable[[SandboxConfig], SandboxBackend]

_COLIMA = "install Docker Desktop, or Colima: brew install colima docker && colima start"
_WSL = "install WSL2 (wsl --install), and in it this package and bubblewrap (sudo apt install bubblewrap) or Docker"
_ENGINE = "install Docker (docs.docker.com/engine/install) or Podman and start it, or set DOCKER_HOST"
_PACKAGE_MANAGERS = {
    "debian": "sudo apt install",
    "ubuntu": "sudo apt install",
    "fedora": "sudo dnf install",
    "rhel": "sudo dnf install",
    "arch": "sudo pacman -S",
    "alpine": "sudo apk add",
    "suse": "sudo zypper install",
}


@dataclass(frozen=True)
class BackendStatus:
    """Whether a backend works on this machine: `detail` says what it is or why not, `remedy` what to do (or "").

    `unenforced` is what it cannot enforce here, each with the reason.
    """

    name: str
    works: bool
    detail: str
    remedy: str = ""
    unenforced: Mapping[str, str] = field(default_factory=dict)


def _docker(config: SandboxConfig, *, judged: bool = True) -> SandboxBackend:
    from agent.sandbox.docker.backend import DockerBackend

    return DockerBackend(limits(config), image=config.image, images=config.images, **_kept(config, judged))


def _bwrap(config: SandboxConfig, *, judged: bool = True) -> SandboxBackend:
    from agent.sandbox.bwrap.backend import BwrapBackend

    if config.image is not None:
        raise UsageError(f"--image {config.image}: bubblewrap runs no images; they are for --sandbox docker")
    return BwrapBackend(limits(config), **_kept(config, judged))


def _kept(config: SandboxConfig, judged: bool) -> dict[str, Any]:
    found = supply(config)
    return {
        "supply": found if judged else replace(found, rule=None),
        "mounts": read_mounts(config.mount_ro),
        "python": config.python,
        "pool": config.pool,
        "starts": config.starts,
    }


BACKENDS: Mapping[str, Make] = {"docker": _docker, "bwrap": _bwrap}
"""Every backend by its name, in the order in which `auto` tries them."""

LOCKED: Mapping[str, Make] = {
    "docker": partial(_docker, judged=False),
    "bwrap": partial(_bwrap, judged=False),
}
"""The same for a run's lock: what it names was judged by the rule when it was made, or came with what was."""


def limits(config: SandboxConfig) -> Limits:
    """Return the limits of one sandbox that a configuration means."""
    return Limits(
        memory=config.memory_mb << 20,
        processes=config.processes,
        cpus=config.cpus,
        files=config.files_mb << 20,
        output=config.output_kb << 10,
        inodes=config.inodes,
    )


def limit_settings(backend: SandboxBackend) -> dict[str, int | float]:
    """Return a backend's limits as settings, the other way round than `limits`; {} where it does not say them."""
    if not isinstance(backend, Limited):
        return {}
    found = backend.limits
    return {
        "memory_mb": found.memory >> 20,
        "processes": found.processes,
        "cpus": found.cpus,
        "files_mb": found.files >> 20,
        "output_kb": found.output >> 10,
        "inodes": found.inodes,
    }


def supply(config: SandboxConfig) -> Supply:
    """Return what a configuration means about dependencies.

    Raises:
        UsageError: the requirements file cannot be used, or a date is none.
    """
    always = () if config.requirements is None else read_requirements(Path(config.requirements))
    newest = None if config.exclude_newer is None else read_moment(config.exclude_newer)
    return Supply(config.network_for_builds, rule(config), config.store_mb << 20, always, newest)


def rule(config: SandboxConfig) -> IndexRule:
    """Return the rule for what may be fetched that a configuration means; it asks pip's indexes on first need."""
    asks = config.index_rule and config.network_for_builds
    return IndexRule(PackageIndex(ProjectCache(default_cache() / "projects")) if asks else None)


async def choose(
    config: SandboxConfig, progress: Progress, *, backends: Mapping[str, Make] = BACKENDS
) -> SandboxBackend:
    """Return a started backend; the caller closes it. A backend asked for by name is never replaced by another.

    Raises:
        SandboxUnavailable: the one asked for does not work, or with `auto` none does; says why and what to do.
        UsageError: the settings contradict each other, or the run's own requirements cannot be had.
    """
    if config.era == "pair" and config.image is not None:
        raise UsageError(f"--image {config.image} is one Python, and --era pair asks for that of each pair's year")
    backend = await _started(config, progress, backends)
    try:
        await _stock(backend)
        if config.era == "pair":
            backend = _with_eras(backend, config, backends)
            await backend.start(progress)
    except BaseException:
        await backend.close()
        raise
    return backend


def _with_eras(own: SandboxBackend, config: SandboxConfig, backends: Mapping[str, Make]) -> SandboxBackend:
    pool = min(config.pool, _ERA_POOL)
    return Eras(own, lambda python: backends[own.name](config.model_copy(update={"python": python, "pool": pool})))


async def _stock(backend: SandboxBackend) -> None:
    """Build what every program of the run is to have, before anything is spent on it."""
    if not backend.environments.always:
        return
    try:
        await backend.environments.build(())
    except (DependencyUnavailable, SandboxError) as error:
        raise UsageError(f"what --requirements asks for cannot be had: {error}") from error


async def _started(config: SandboxConfig, progress: Progress, backends: Mapping[str, Make]) -> SandboxBackend:
    if config.backend != "auto" or config.image is not None:
        # only Docker runs images
        backend = backends["docker" if config.backend == "auto" else config.backend](config)
        await backend.start(progress)
        return backend
    refusals: dict[str, str] = {}
    for name, make in backends.items():
        backend = make(config)
        try:
            await backend.start(progress)
        except SandboxUnavailable as error:
            refusals[name] = str(error)
            continue
        passed_over = "".join(f"; {other} does not work: {_first(why)}" for other, why in refusals.items())
        progress(f"The sandbox is {name}, chosen by auto{passed_over}")
        return backend
    raise none_works(refusals)


def none_works(refusals: Mapping[str, str]) -> SandboxUnavailable:
    """Return the error for a machine on which each backend gave a reason why it does not work."""
    reasons = "\n".join(f"- {name}: {why}" for name, why in refusals.items())
    todo = "\n".join(f"- {name}: {remedy(name)}" for name in refusals)
    return SandboxUnavailable(f"No sandbox works on this machine.\n{reasons}\nWhat to do:\n{todo}")


async def probe(
    config: SandboxConfig | None = None,
    *,
    backends: Mapping[str, Make] = BACKENDS,
    examine: Callable[[SandboxBackend], Awaitable[None]] | None = None,
) -> list[BackendStatus]:
    """Start and close every backend, and say how each fared. The first time this builds the sandbox image.

    `examine` is given each backend that works, while it does.
    """
    found = []
    for name, make in backends.items():
        backend = make(config or SandboxConfig())
        try:
            await backend.start(lambda _line: None)
        except SandboxUnavailable as error:
            found.append(BackendStatus(name, False, str(error), remedy(name)))
            continue
        described = {key: value for key, value in backend.describe().items() if key != "backend"}
        unenforced = backend.unenforced()
        try:
            if examine is not None:
                await examine(backend)
        finally:
            await backend.close()
        detail = ", ".join(f"{key} {value}" for key, value in described.items())
        found.append(BackendStatus(name, True, detail, unenforced=unenforced))
    return found


def remedy(name: str, *, system: str | None = None, release: str | None = None) -> str:
    """Say how to get a backend to work on an operating system, by default this one.

    `system` is as `platform.system()` says it; `release` the text of Linux's os-release file.
    """
    system = system or platform.system()
    if system == "Darwin":
        return _COLIMA if name == "docker" else "bubblewrap is for Linux: use Docker"
    if system == "Windows":
        return _WSL
    return _ENGINE if name == "docker" else f"install bubblewrap: {_install(release)} bubblewrap"


def _install(release: str | None) -> str:
    """Return the start of the distribution's command for installing packages."""
    text = _os_release() if release is None else release
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    names = f"{fields.get('ID', '')} {fields.get('ID_LIKE', '')}".replace('"', "").split()
    known = (command for name in names for like, command in _PACKAGE_MANAGERS.items() if like in name)
    return next(known, "with the system's package manager:")


def _os_release() -> str:
    for path in (Path("/etc/os-release"), Path("/usr/lib/os-release")):
        if path.is_file():
            return path.read_text(encoding="utf-8", errors="replace")
    return ""


def _first(text: str) -> str:
    return text.partition("\n")[0]
