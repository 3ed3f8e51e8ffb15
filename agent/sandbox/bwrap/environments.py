"""Dependency environments for bubblewrap sandboxes: built in one of its own, kept in a folder of the host."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from agent.errors import SandboxError
from agent.sandbox.bwrap.process import Bubblewrap, BwrapProcess, finished
from agent.sandbox.bwrap.store import BwrapStore
from agent.sandbox.dependencies import builder_words, host_pip
from agent.sandbox.dependencies.leases import Leases
from agent.sandbox.dependencies.upkeep import Stored
from agent.sandbox.dependencies.wheel_archive import ROOM, Room
from agent.sandbox.dependencies.wheels import InterpreterTag
from agent.sandbox.inside import installer, shelf, source
from agent.sandbox.interpreter import UNPRIVILEGED

_TEMPORARY = 64 << 20


class BwrapInstaller:
    """Installs wheels in a sandbox that sees them, pip and one staging folder. `place` says where, once started."""

    def __init__(self, place: Callable[[], tuple[Bubblewrap, BwrapStore]], room: Room = ROOM) -> None:
        self._place = place
        self._room = room
        self.leases = Leases(lambda: place()[1].leases)

    @property
    def interpreter(self) -> InterpreterTag:
        """The interpreter that sandboxes run.

        Raises:
            SandboxError: the backend was not started, so it is not known.
        """
        return self._place()[0].interpreter.tag

    async def installed(self, key: str) -> tuple[str, ...] | None:
        """Return the lock of a published environment, or None when there is none.

        Raises:
            SandboxError: the store cannot be read.
        """
        try:
            return _lock(self._place()[1].envs / key)
        except (OSError, ValueError, RecursionError) as error:
            raise SandboxError(f"the environment store cannot be read: {error}") from error

    async def install(self, wheels: Sequence[Path], key: str) -> tuple[str, ...]:
        """Install wheels in a throwaway sandbox without network; publish under `key`.

        Raises:
            DependencyUnavailable: pip refuses a wheel, or there is none for the interpreter.
            SandboxError: the builder broke.
        """
        bubblewrap, store = self._place()
        staging = store.staging / f"{key}-{secrets.token_hex(4)}"
        job = await asyncio.to_thread(builder_words.installer_job, wheels, self._room)
        try:
            await asyncio.to_thread(installer.drop_stale, staging)
            await asyncio.to_thread(_prepare, staging, wheels)
            await self._build(bubblewrap, await asyncio.to_thread(store.pip), staging, key, job)
            return await asyncio.to_thread(_publish, staging / "out" / key, store.envs / key)
        except (OSError, ValueError, RecursionError) as error:
            raise SandboxError(f"the environment could not be stored: {error}") from error
        finally:
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, staging, ignore_errors=True))

    def forget(self, key: str) -> None:
        """Do nothing: the store itself is looked at each time."""

    async def stored(self) -> list[Stored]:
        """Return every published environment, those for other interpreters as well.

        Raises:
            SandboxError: the store cannot be read.
        """
        try:
            return await asyncio.to_thread(self._stored)
        except OSError as error:
            raise SandboxError(f"the environment store cannot be read: {error}") from error

    def _stored(self) -> list[Stored]:
        return [
            Stored(key, tuple(lock), size, self.leases.used(key) or published)
            for envs in self._place()[1].every_envs()
            for key, (lock, size, published) in shelf.listed(envs).items()
        ]

    async def remove(self, keys: Sequence[str]) -> None:
        """Remove environments that were claimed.

        Raises:
            SandboxError: the store cannot be written.
        """
        try:
            for envs in self._place()[1].every_envs():
                await asyncio.to_thread(shelf.remove, envs, list(keys))
        except OSError as error:
            raise SandboxError(f"the environment store cannot be written: {error}") from error

    async def _build(self, bubblewrap: Bubblewrap, pip: Path, staging: Path, key: str, job: str) -> None:
        build = ["-I", "-c", source("installer"), "/staging/out", "/staging/in", key, job]
        if host_pip.runs_on(bubblewrap.interpreter.tag.version):
            build.append("/pip")
        arguments = bubblewrap.arguments(
            [bubblewrap.interpreter.path, *build],
            shown={pip: "/pip"},
            tmpfs={"/tmp": _TEMPORARY},
            kept={staging: "/staging"},
        )
        process = await finished(BwrapProcess.spawn(bubblewrap, arguments), BwrapProcess.end)
        try:
            async with asyncio.timeout(builder_words.DEADLINE):
                said = asyncio.gather(*map(builder_words.everything, (process.reader, process.stderr)))
                out, err = await said
        except TimeoutError:
            raise SandboxError(f"installing wheels took longer than {builder_words.DEADLINE:.0f} s") from None
        finally:
            process.kill()
            await asyncio.shield(process.end())
        python = bubblewrap.interpreter
        no_pip = (
            f"Python {python.version} has no pip of its own, and this program's is too new for it, so nothing can be "
            f"installed: {python.path} -m ensurepip"
        )
        try:
            builder_words.installed(builder_words.last_object(out), no_pip=no_pip)
        except ValueError as error:
            why = err.decode("utf-8", "replace").strip()[-1000:]
            raise SandboxError(f"the builder ended without an answer: {error}; {why}") from error


def _prepare(staging: Path, wheels: Sequence[Path]) -> None:
    into = staging / "in" / "wheels"
    into.mkdir(parents=True)
    (staging / "out").mkdir()
    for wheel in wheels:
        shutil.copyfile(wheel, into / wheel.name)
    _give(staging, UNPRIVILEGED, 0o700)


def _publish(built: Path, place: Path) -> tuple[str, ...]:
    """Move an environment to its place and return its lock; one that was published meanwhile is left as it is."""
    _give(built, 0, 0o755)
    try:
        built.rename(place)
    except OSError:
        if not place.is_dir():
            raise
    lock = _lock(place)
    if lock is None:
        raise SandboxError(f"the environment {place.name} was removed while it was built")
    return lock


def _lock(environment: Path) -> tuple[str, ...] | None:
    try:
        return builder_words.texts(json.loads((environment / installer.LOCK).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def _give(folder: Path, owner: int, mode: int) -> None:
    """Make all in a folder a user's, where this process may: sandboxes must not be able to write environments."""
    if os.geteuid() != 0:
        return
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.lchown(Path(parent) / name, owner, owner)
    os.lchown(folder, owner, owner)
    folder.chmod(mode)
