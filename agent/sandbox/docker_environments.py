"""Dependency environments on a container engine: a named volume, written by throwaway builders alone."""

from __future__ import annotations

import asyncio
import json
import secrets
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from agent.errors import DependencyUnavailable, SandboxError
from agent.sandbox.attach import AttachedStream
from agent.sandbox.base import Limits
from agent.sandbox.containers import STORE, WORK, ContainerCrew, builder_config, fresh_name, sandbox_config
from agent.sandbox.docker_engine import DockerEngine
from agent.sandbox.environments import InterpreterTag
from agent.sandbox.inside import installer, source
from agent.sandbox.postmortem import postmortem

BUILD_DEADLINE = 900.0
PROBE_DEADLINE = 60.0
_BUILDER_MEMORY = 1 << 30

_PROBE = f"""
import json, os, platform, sys
closed = [path for path in ({WORK!r}, "/tmp", "/dev/shm") if os.stat(path).st_mode & 0o7 != 0o7]
if closed:
    sys.exit("not everybody may write to " + ", ".join(closed) + ": in the image, remove the folder or chmod 1777 it")
known = "CS_GNU_LIBC_VERSION" in os.confstr_names
libc, _, version = (os.confstr("CS_GNU_LIBC_VERSION") if known else "").partition(" ")
names = dict(cpython="cp", pypy="pp")
print(json.dumps(dict(
    full=platform.python_version(), version="%d.%d" % sys.version_info[:2], machine=os.uname().machine,
    implementation=names.get(sys.implementation.name, sys.implementation.name),
    libc=libc or "musl", libc_version=version or "1.1",
)))
"""


@dataclass(frozen=True)
class Site:
    """Where the containers of a started backend come from. `store` is the volume's name."""

    engine: DockerEngine
    crew: ContainerCrew
    image: str
    store: str
    limits: Limits
    labels: Mapping[str, str]


class DockerInstaller:
    """Installs wheels into the volume that every sandbox has mounted read-only. `site` says where, once started."""

    def __init__(self, site: Callable[[], Site]) -> None:
        self._site = site
        self._interpreter: InterpreterTag | None = None
        self.python = ""

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
        """Ask the image's interpreter what it is; shows as well that hardened containers start here.

        Raises:
            SandboxError: the container does not start, or there is no Python in the image.
        """
        site = self._site()
        command = ["python3", "-I", "-S", "-c", _PROBE]
        config = sandbox_config(site.image, command, site.limits, site.store, site.labels)
        said = await _said(site, config, PROBE_DEADLINE)
        self.python = said.pop("full")
        self._interpreter = InterpreterTag(**said)

    async def installed(self, key: str) -> tuple[str, ...] | None:
        """Return the lock of a published environment, or None when there is none.

        Raises:
            SandboxError: the engine cannot read the volume.
        """
        site = self._site()
        content = await site.crew.call(_read, site, f"{STORE}/{key}/{installer.LOCK}")
        return None if content is None else tuple(json.loads(content))

    async def install(self, wheels: Sequence[Path], key: str) -> tuple[str, ...]:
        """Install wheels in a throwaway container without network, secrets or capabilities; publish under `key`.

        Raises:
            SandboxError: the builder broke.
            DependencyUnavailable: the image has no pip, or pip refuses a wheel.
        """
        site = self._site()
        staging = f".staging/{key}-{secrets.token_hex(4)}"
        command = ["python3", "-I", "-c", source("installer"), STORE, f"{STORE}/{staging}", key]
        config = builder_config(site.image, command, builder_limits(site.limits), site.store, site.labels)

        def send_wheels(name: str) -> None:
            with tempfile.TemporaryFile() as archive:
                _pack(wheels, staging, archive)
                archive.seek(0)
                site.engine.put(name, STORE, archive)

        said = await _said(site, config, BUILD_DEADLINE, send_wheels)
        if said.get("no_pip"):
            raise DependencyUnavailable(
                f"the sandbox image {site.image} has no pip, so nothing can be installed for it: add pip to the image"
            )
        if "refused" in said:
            raise DependencyUnavailable(f"the wheels could not be installed; pip says:\n{said['refused']}")
        return tuple(said["installed"])


def builder_limits(limits: Limits) -> Limits:
    """A builder runs pip alone: it needs no less than pip does, however small the sandboxes are."""
    return Limits(memory=max(limits.memory, _BUILDER_MEMORY), cpus=limits.cpus, files=limits.files)


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
        site.engine.create(sandbox_config(site.image, ["python3"], site.limits, site.store, site.labels), name)
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
                lines = (await stream.reader.read()).splitlines()
            answer = json.loads(lines[-1])
            assert isinstance(answer, dict)
            return answer
        except TimeoutError:
            raise SandboxError(f"container {launched.name} did not end within {deadline:.0f} s") from None
        except (OSError, ValueError, IndexError, AssertionError) as error:
            look = partial(site.crew.call, site.engine.state, launched.name)
            raise await postmortem(look, launched.name, stream.stderr) from error
        finally:
            stream.close()
    finally:
        site.crew.discard(launched.name)
