"""Downloads wheels by a pip in a throwaway builder, whose only way out is a proxy to the configured indexes."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from agent.errors import DependencyUnavailable, SandboxError
from agent.sandbox.dependencies import builder_words
from agent.sandbox.dependencies.builder_settings import SETTINGS, BuilderSettings, read_settings
from agent.sandbox.dependencies.egress import EgressProxy
from agent.sandbox.dependencies.pip_process import MOST_FILES, PipOutput, Tail, guarded_pip, is_before, too_large
from agent.sandbox.dependencies.wheel_archive import ROOM
from agent.sandbox.inside import ENVIRONMENT, source
from agent.sandbox.inside.relay import OVERFULL, Mux, job_bytes

FETCH = "/fetch"
"""The folder of a builder that has room for a download."""

WHEELS = f"{FETCH}/wheels"
RELAY = ("-I", "-S", "-c", source("relay"))
"""What a builder's interpreter is told to run."""

_TEMPORARY = f"{FETCH}/tmp"
_FIXED = {"PIP_NO_INPUT": "1", "PIP_NO_COLOR": "1", "PIP_NO_CACHE_DIR": "1", "PYTHONIOENCODING": "utf-8"}


class Builder(Protocol):
    """A started throwaway sandbox that runs the relay; `pip` is a folder with pip, none where it has its own."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    pip: tuple[str, ...]

    async def overfull(self, size: int) -> None:
        """Return once its files take more than `size` bytes."""
        ...

    async def take(self, into: Path, size: int) -> None:
        """Copy what `WHEELS` holds to the host, once the relay has ended: plain files only.

        Raises:
            DependencyUnavailable: something else is there, or more than `size` bytes.
            SandboxError: it cannot be read.
        """
        ...

    async def trouble(self) -> SandboxError:
        """Return the error for a relay that ended without an answer."""
        ...


class SandboxedPip:
    """A `Pip` in a fresh builder for each download. `open_builder` is told how many bytes it may write."""

    def __init__(self, open_builder: Callable[[int], AbstractAsyncContextManager[Builder]]) -> None:
        self.open_builder = open_builder

    async def __call__(self, arguments: Sequence[str], into: Path, *, size: int) -> PipOutput:
        """Download as the host's pip would, with its settings.

        Raises:
            DependencyUnavailable: more than `size` bytes, a host that no setting names, or a builder without pip.
            SandboxError: the settings cannot be used, or the builder broke.
        """
        settings = await read_settings()
        dated = "PIP_UPLOADED_PRIOR_TO" in settings.environment or any(map(is_before, arguments))
        proxy = EgressProxy(
            settings.allowed,
            upstreams=settings.upstreams,
            folders=settings.folders,
            heaps=settings.heaps,
            with_dates=dated,
            size=size,
        )
        async with self.open_builder(size) as builder:
            output = await _run(builder, _job(settings, builder.pip, arguments, size), proxy, size)
            if output.exit_code == 0 and not proxy.exhausted:
                await builder.take(into, size)
        if proxy.exhausted:
            raise too_large(size)
        if output.exit_code:
            _explain(output, proxy)
        return output


def _job(settings: BuilderSettings, paths: Sequence[str], arguments: Sequence[str], size: int) -> bytes:
    command = ["-c", guarded_pip(*paths), "download", "--dest", WHEELS, *arguments]
    environment = {**ENVIRONMENT, **settings.environment, **_FIXED, "HOME": "/tmp", "TMPDIR": _TEMPORARY}
    folders = [WHEELS, _TEMPORARY, SETTINGS]
    room = {"folder": FETCH, "size": size, "files": MOST_FILES, "memory": ROOM.memory}
    return job_bytes(
        {"command": command, "environment": environment, "folders": folders, "files": settings.files, "room": room}
    )


async def _run(builder: Builder, job: bytes, proxy: EgressProxy, size: int) -> PipOutput:
    printed = Tail()
    talk = asyncio.ensure_future(Mux(builder.reader, builder.writer, proxy.serve, printed.add).run())
    watch = asyncio.ensure_future(builder.overfull(size))
    try:
        builder.writer.write(job)
        await asyncio.wait({talk, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not talk.done():
            raise too_large(size)
        exit_code = builder_words.exit_code(await talk)
        if exit_code == OVERFULL:
            raise too_large(size)
        return PipOutput(exit_code, await asyncio.to_thread(lambda: printed.text))
    except (OSError, EOFError, ValueError) as error:
        raise await builder.trouble() from error
    finally:
        talk.cancel()
        watch.cancel()
        await asyncio.gather(talk, watch, return_exceptions=True)


def _explain(output: PipOutput, proxy: EgressProxy) -> None:
    if "No module named pip" in output.text:
        raise DependencyUnavailable(
            "the sandbox image has no pip, so nothing can be fetched for it: add pip to the image"
        )
    if proxy.refused:
        raise DependencyUnavailable(
            f"the download leads to {', '.join(proxy.refused[:3])}, which no package index of pip's settings is: "
            "where your index keeps its files there, name that place in pip's settings too (find-links)"
        )


def copy_plain_files(folder: Path, into: Path, size: int) -> None:
    """Copy the files of a folder that a builder filled and can no longer change; links are not followed.

    Raises:
        DependencyUnavailable: there is anything but files, or more than `size` bytes.
        OSError: one cannot be read or written.
    """
    left = size
    for entry in folder.iterdir():
        if not stat.S_ISREG(entry.lstat().st_mode):
            raise DependencyUnavailable(f"{entry.name[:100]!r} is no wheel: only wheels are installed")
        left -= entry.lstat().st_size
        if left < 0:
            raise too_large(size)
        with (
            os.fdopen(os.open(entry, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file,
            (into / entry.name).open("wb") as copy,
        ):
            shutil.copyfileobj(file, copy)
