"""Dependency environments on a container engine: a named volume, written by throwaway builders alone."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from agent.errors import SandboxError
from agent.sandbox.base import Limits
from agent.sandbox.dependencies import builder_words
from agent.sandbox.dependencies.environments import InterpreterTag
from agent.sandbox.dependencies.leases import Leases
from agent.sandbox.dependencies.upkeep import Stored
from agent.sandbox.dependencies.wheel_archive import ROOM, Room
from agent.sandbox.docker.attach import AttachedStream
from agent.sandbox.docker.containers import (
    STORE,
    WORK,
    ContainerCrew,
    Setting,
    builder_config,
    fresh_name,
    postmortem,
    sandbox_config,
)
from agent.sandbox.docker.engine import DockerEngine
from agent.sandbox.inside import installer, source
from agent.sandbox.places import user_cache

T = TypeVar("T")

DEADLINE = 60.0
_BUILDER_MEMORY = 1 << 30

_PROBE = f"""
import platform, sys
closed = [path for path in ({WORK!r}, "/tmp", "/dev/shm") if os.stat(path).st_mode & 0o7 != 0o7]
if closed:
    sys.exit("not everybody may write to " + ", ".join(closed) + ": in the image, remove the folder or chmod 1777 it")
known = "CS_GNU_LIBC_VERSION" in os.confstr_names
libc, _, version = (os.confstr("CS_GNU_LIBC_VERSION") if known else "").partition(" ")
names = dict(cpython="cp", pypy="pp")
print(json.dumps(dict(
    full=platform.python_version(), version="%d.%d" % sys.version_info[:2], machine=os.uname().machine,
    implementation=names.get(sys.implementation.name, sys.implementation.name),
    libc=libc or "musl", libc_version=version or "1.1", store=locks(Path({STORE!r})),
)))
"""

_LIST = f"print(json.dumps(listed(Path({STORE!r}))))"
_REMOVE = f"import sys\nremove(Path({STORE!r}), sys.argv[1:])\nprint(dict())"


@dataclass(frozen=True)
class Site:
    """Where the containers of a started backend come from."""

    engine: DockerEngine
    crew: ContainerCrew
    setting: Setting


class DockerInstaller:
    """Installs wheels into the volume that every sandbox has mounted read-only. `site` says where, once started.

    What the volume held at the start and what was installed since is known without asking the engine; only for the
    rest, which another process may have built, is it asked.

    Leases and times of use are kept on the host, for each engine and volume: sandboxes see the volume and must change
    nothing in it, and a container for each use would cost more than the use. Another host or user of the same engine
    does not see them; what it removes is built again.
    """

    def __init__(self, site: Callable[[], Site], room: Room = ROOM) -> None:
        self._site = site
        self._room = room
        self._known: dict[str, tuple[str, ...]] = {}
        self._interpreter: InterpreterTag | None = None
        self.python = ""
        self._leases_folder = Path()
        self.leases = Leases(lambda: self._leases_folder)

    @property
    def interpreter(self) -> InterpreterTag:
        """The interpreter of the image.

        Raises:
            SandboxError: the backend was not started, so it is not known.
        """
        if self._interpreter is None:
            raise SandboxError("the Docker backend was not started")
        return self._interpreter

    async def probe(self) -> None:
        """Ask the image's interpreter what it is and what the store holds; shows that hardened containers start here.

        Raises:
            SandboxError: the container does not start, or there is no Python in the image.
        """
        site = self._site()
        command = ["python3", "-I", "-S", "-c", source("shelf") + _PROBE]
        config = sandbox_config(site.setting, command)
        said = await _said(site, config, DEADLINE)
        self.python, self._known, self._interpreter = _understood(_probed, said)
        place = hashlib.sha256(f"{site.engine.id}\0{site.setting.store}".encode()).hexdigest()[:16]
        self._leases_folder = user_cache() / "docker" / place / "leases"

    async def installed(self, key: str) -> tuple[str, ...] | None:
        """Return the lock of a published environment, or None when there is none.

        Raises:
            SandboxError: the engine cannot read the volume.
        """
        if key not in self._known:
            site = self._site()
            content = await site.crew.call(_read, site, f"{STORE}/{key}/{installer.LOCK}")
            if content is None:
                return None
            try:
                self._known[key] = builder_words.texts(json.loads(content))
            except (ValueError, RecursionError) as error:
                raise SandboxError(f"the environment {key} has no readable lock: {error}") from error
        return self._known[key]

    async def install(self, wheels: Sequence[Path], key: str) -> tuple[str, ...]:
        """Install wheels in a throwaway container without network, secrets or capabilities; publish under `key`.

        Raises:
            SandboxError: the builder broke.
            DependencyUnavailable: the image has no pip, or pip refuses a wheel.
        """
        site = self._site()
        staging = f".staging/{key}-{secrets.token_hex(4)}"
        job = await asyncio.to_thread(builder_words.installer_job, wheels, self._room)
        command = ["python3", "-I", "-c", source("installer"), STORE, f"{STORE}/{staging}", key, job]
        config = builder_config(for_builders(site.setting), command)

        def send_wheels(name: str) -> None:
            with tempfile.TemporaryFile() as archive:
                _pack(wheels, staging, archive)
                archive.seek(0)
                site.engine.put(name, STORE, archive)

        said = await _said(site, config, builder_words.DEADLINE, send_wheels)
        no_pip = f"the sandbox image {site.setting.image} has no pip, so nothing can be installed: add it to the image"
        self._known[key] = _understood(partial(builder_words.installed, no_pip=no_pip), said)
        return self._known[key]

    def forget(self, key: str) -> None:
        """Take an environment for gone: the next who asks for it has the volume looked at."""
        self._known.pop(key, None)

    async def stored(self) -> list[Stored]:
        """Return every published environment of the volume.

        Raises:
            SandboxError: the container that looks does not start, or breaks.
        """
        site = self._site()
        command = ["python3", "-I", "-S", "-c", f"{source('shelf')}\n{_LIST}"]
        said = await _said(site, sandbox_config(site.setting, command), DEADLINE)
        stored = _understood(_listed, said)
        self._known = {each.key: each.installed for each in stored}
        return [replace(each, used=self.leases.used(each.key) or each.used) for each in stored]

    async def remove(self, keys: Sequence[str]) -> None:
        """Remove environments that were claimed, in a container without network or capabilities.

        Raises:
            SandboxError: it does not start, or breaks.
        """
        site = self._site()
        command = ["python3", "-I", "-S", "-c", f"{source('shelf')}\n{_REMOVE}", *keys]
        for key in keys:
            self.forget(key)
        await _said(site, builder_config(site.setting, command), builder_words.DEADLINE)


def _probed(said: Mapping[str, Any]) -> tuple[str, dict[str, tuple[str, ...]], InterpreterTag]:
    words = {name: said[name] for name in ("full", "version", "machine", "implementation", "libc", "libc_version")}
    builder_words.texts(list(words.values()))
    full = words.pop("full")
    return full, {key: builder_words.texts(lock) for key, lock in said["store"].items()}, InterpreterTag(**words)


def _listed(said: Mapping[str, Any]) -> list[Stored]:
    return [
        Stored(key, builder_words.texts(lock), int(size), float(published))
        for key, (lock, size, published) in said.items()
    ]


def _understood(read: Callable[[Mapping[str, Any]], T], said: Mapping[str, Any]) -> T:
    """Read what a container said, which may be anything.

    Raises:
        SandboxError: it makes no sense.
    """
    try:
        return read(said)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise SandboxError(f"a container's answer makes no sense: {error}") from error


def for_builders(setting: Setting) -> Setting:
    """A builder runs pip alone: it needs no less than pip does, however small the sandboxes are."""
    limits = setting.limits
    roomy = Limits(memory=max(limits.memory, _BUILDER_MEMORY), cpus=limits.cpus, files=limits.files)
    return replace(setting, limits=roomy)


def _pack(wheels: Sequence[Path], staging: str, stream: BinaryIO) -> None:
    folders = (".staging", staging, f"{staging}/wheels")
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for folder in folders:
            entry = tarfile.TarInfo(folder)
            # without its time it would pass for a stale one, which any other builder removes
            entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, time.time()
            archive.addfile(entry)
        for wheel in wheels:
            with wheel.open("rb") as content:
                entry = tarfile.TarInfo(f"{folders[-1]}/{wheel.name}")
                entry.size, entry.mode = wheel.stat().st_size, 0o644
                archive.addfile(entry, content)


def _read(site: Site, path: str) -> bytes | None:
    """Read a file of the store through a container that is created for it and never started."""
    name = fresh_name()
    try:
        site.engine.create(sandbox_config(site.setting, ["python3"]), name)
        return site.engine.read(name, path)
    finally:
        site.engine.remove(name)


async def _said(
    site: Site, config: Mapping[str, Any], deadline: float, prepare: Callable[[str], None] | None = None
) -> dict[str, Any]:
    """Run a container to its end and return the JSON object that is the last line of its output.

    Raises:
        SandboxError: it did not start, did not end in time, or ended without an answer.
    """
    launched = await site.crew.launch(config, prepare, deadline=deadline)
    try:
        stream = await AttachedStream.open(launched.connection)
        try:
            async with asyncio.timeout(deadline):
                output = await builder_words.everything(stream.reader)
            return builder_words.last_object(output)
        except TimeoutError:
            raise SandboxError(f"container {launched.name} did not end within {deadline:.0f} s") from None
        except (OSError, ValueError) as error:
            look = partial(site.crew.call, site.engine.state, launched.name)
            raise await postmortem(look, launched.name, stream.stderr) from error
        finally:
            stream.close()
    finally:
        site.crew.discard(launched.name)
