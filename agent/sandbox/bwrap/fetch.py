"""Throwaway bubblewrap sandboxes in which pip downloads wheels."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from agent.errors import SandboxError
from agent.sandbox.bwrap.process import Bubblewrap, BwrapProcess, finished
from agent.sandbox.bwrap.store import BwrapStore
from agent.sandbox.dependencies import host_pip
from agent.sandbox.dependencies.pip_process import is_overfull
from agent.sandbox.dependencies.sandboxed_pip import FETCH, RELAY, WHEELS, copy_plain_files
from agent.sandbox.interpreter import UNPRIVILEGED, find_interpreter

_TEMPORARY = 64 << 20
_PIP = "/pip-home"
_LOOK_SECONDS = 1.0


class BwrapBuilder:
    """A builder that writes to one folder of the host, which is removed with it."""

    def __init__(self, process: BwrapProcess, folder: Path) -> None:
        self.reader = process.reader
        self.writer = process.writer
        self.pip: tuple[str, ...] = (_PIP,)
        self._process = process
        self._folder = folder

    async def overfull(self, size: int) -> None:
        """Return once its files take more than `size` bytes, or are too many."""
        while True:
            if await asyncio.to_thread(is_overfull, self._folder, size):
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def take(self, into: Path, size: int) -> None:
        """Copy what was downloaded to a folder of the host.

        Raises:
            DependencyUnavailable: there is anything but files, or more than `size` bytes.
            SandboxError: it cannot be read.
        """
        await self._process.end()
        try:
            await asyncio.to_thread(copy_plain_files, self._folder / Path(WHEELS).name, into, size)
        except OSError as error:
            raise SandboxError(f"what was downloaded cannot be read: {error}") from error

    async def trouble(self) -> SandboxError:
        """Return the error for a relay that ended without an answer."""
        return SandboxError(f"the builder ended without an answer: {await self._process.last_words()}")


class BwrapBuilders:
    """Starts builders. `place` says where, once the backend is started."""

    def __init__(self, place: Callable[[], tuple[Bubblewrap, BwrapStore]]) -> None:
        self._place = place

    @asynccontextmanager
    async def open(self, _size: int) -> AsyncIterator[BwrapBuilder]:
        """Start one; with the context all of it is gone.

        Raises:
            SandboxError: it cannot be started.
        """
        bubblewrap, store = self._place()
        bubblewrap = await asyncio.to_thread(_running_pip, bubblewrap)
        folder = store.staging / f"fetch-{secrets.token_hex(8)}"
        pip = await asyncio.to_thread(store.pip)
        arguments = bubblewrap.arguments(
            [bubblewrap.interpreter.path, *RELAY],
            shown={pip: f"{_PIP}/pip"},
            tmpfs={"/tmp": _TEMPORARY},
            kept={folder: FETCH},
        )
        try:
            await asyncio.to_thread(_make, folder)
            process = await finished(BwrapProcess.spawn(bubblewrap, arguments), BwrapProcess.end)
            try:
                yield BwrapBuilder(process, folder)
            finally:
                process.kill()
                await asyncio.shield(process.end())
        finally:
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True))


def _running_pip(bubblewrap: Bubblewrap) -> Bubblewrap:
    """Return one whose interpreter this process's pip runs on: what is downloaded does not depend on it. Blocks."""
    if host_pip.runs_on(bubblewrap.interpreter.tag.version):
        return bubblewrap
    return replace(bubblewrap, interpreter=find_interpreter())


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(folder, UNPRIVILEGED, UNPRIVILEGED)
    except OSError as error:
        raise SandboxError(f"a folder for downloads cannot be made: {error}") from error
