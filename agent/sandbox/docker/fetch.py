"""Throwaway containers without network in which pip downloads wheels."""

from __future__ import annotations

import asyncio
import io
import shutil
import tarfile
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from agent.errors import DependencyUnavailable, SandboxError
from agent.sandbox.dependencies import host_pip
from agent.sandbox.dependencies.pip_process import too_large
from agent.sandbox.dependencies.sandboxed_pip import FETCH, RELAY, WHEELS
from agent.sandbox.docker.attach import AttachedStream
from agent.sandbox.docker.containers import builder_config, postmortem
from agent.sandbox.docker.environments import Site, for_builders

_COPY = 1 << 20
_PIP = "pip-home"
_OPEN_FILES = 1024
_SMALL_FILES = 16 << 20


class DockerBuilder:
    """A builder that writes to a nameless volume, which the engine removes with the container."""

    def __init__(self, site: Site, name: str, stream: AttachedStream, pip: tuple[str, ...]) -> None:
        self.pip = pip
        self.reader = stream.reader
        self.writer = stream.writer
        self._site = site
        self._name = name
        self._stream = stream

    async def overfull(self, _size: int) -> None:
        """Never return: an engine cannot say cheaply how much a volume holds. The relay ends when it holds too much."""
        await asyncio.Event().wait()

    async def take(self, into: Path, size: int) -> None:
        """Copy what was downloaded to a folder of the host.

        Raises:
            DependencyUnavailable: there is anything but files, or more than `size` bytes.
            SandboxError: the engine does not give it.
        """
        await self._site.crew.call(self._copy, into, size)

    async def trouble(self) -> SandboxError:
        """Return the error for a relay that ended without an answer."""
        look = partial(self._site.crew.call, self._site.engine.state, self._name)
        return await postmortem(look, self._name, self._stream.stderr)

    def _copy(self, into: Path, size: int) -> None:
        unpack_plain_files(self._site.engine.archive(self._name, WHEELS), into, size)


class DockerBuilders:
    """Starts builders. `site` says where, once the backend is started.

    With `site_of_pip` they are given this process's own pip, and started where that says it runs.
    """

    def __init__(self, site: Callable[[], Site], site_of_pip: Callable[[], Awaitable[Site]] | None = None) -> None:
        self._site = site
        self._site_of_pip = site_of_pip

    @asynccontextmanager
    async def open(self, size: int) -> AsyncIterator[DockerBuilder]:
        """Start one that writes no file of more than `size` bytes; with the context it is gone.

        Raises:
            SandboxError: it cannot be started.
        """
        own = self._site_of_pip is None
        site = self._site() if self._site_of_pip is None else await self._site_of_pip()
        launched = await site.crew.launch(_config(site, size), None if own else partial(_send_pip, site))
        try:
            stream = await AttachedStream.open(launched.connection)
            try:
                yield DockerBuilder(site, launched.name, stream, () if own else (f"{FETCH}/{_PIP}",))
            finally:
                stream.close()
        finally:
            site.crew.discard(launched.name)


def _send_pip(site: Site, name: str) -> None:
    with tempfile.TemporaryFile() as archive:
        host_pip.pack(_PIP, archive)
        archive.seek(0)
        site.engine.put(name, FETCH, archive)


def _config(site: Site, size: int) -> dict[str, Any]:
    """Return the settings of a container without network, rights, or sight of any environment."""
    setting = for_builders(site.setting)
    setting = replace(setting, limits=replace(setting.limits, open_files=_OPEN_FILES))
    config = builder_config(setting, ["python3", *RELAY])
    config["HostConfig"]["Mounts"] = [{"Type": "volume", "Target": FETCH, "VolumeOptions": {"NoCopy": True}}]
    longest = size + _SMALL_FILES
    config["HostConfig"]["Ulimits"].append({"Name": "fsize", "Soft": longest, "Hard": longest})
    return config


def unpack_plain_files(chunks: Iterable[bytes], into: Path, size: int) -> None:
    """Unpack a tar archive of one folder, which a builder filled.

    Raises:
        DependencyUnavailable: there is anything but files in the folder, or more than `size` bytes.
        SandboxError: it is no archive, or cannot be written.
    """
    left = size
    try:
        with tarfile.open(fileobj=io.BufferedReader(_Chunks(chunks), _COPY), mode="r|", bufsize=_COPY) as archive:
            for entry in archive:
                place = PurePosixPath(entry.name)
                if entry.isdir() and len(place.parts) == 1:
                    continue  # the folder itself
                content = archive.extractfile(entry) if entry.isreg() and len(place.parts) == 2 else None
                if content is None or place.name == "..":
                    raise DependencyUnavailable(f"{place.name[:100]!r} is no wheel: only wheels are installed")
                left -= entry.size
                if left < 0:
                    raise too_large(size)
                with (into / place.name).open("wb") as file:
                    shutil.copyfileobj(content, file, _COPY)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise SandboxError(f"what was downloaded cannot be read: {error}") from error


class _Chunks(io.RawIOBase):
    """Chunks of bytes as a file."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._held = memoryview(b"")

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, target: Any) -> int:
        """Fill a buffer as far as one chunk goes; 0 is the end."""
        while not self._held:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._held = memoryview(chunk)
        count = min(len(target), len(self._held))
        target[:count] = self._held[:count]
        self._held = self._held[count:]
        return count
