"""Dependency environments for bubblewrap sandboxes: byte-compiled in one of its own, kept in a folder of the host."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from agent.errors import SandboxError
from agent.sandbox.bwrap.folders import BwrapFolders
from agent.sandbox.bwrap.process import Bubblewrap, BwrapProcess, complete_or_undo
from agent.sandbox.dependencies.store import DEADLINE, Leases, Store, StoredEnvironment, parse_strings, read_result
from agent.sandbox.inside import environment_store, source
from agent.sandbox.interpreter import UNPRIVILEGED, InterpreterTag

_TEMPORARY = 64 << 20
_TREE = "/staging"


class BwrapEnvironmentStore(Store):
    """A `Store` in a folder of this host. `place` says where, once the backend is started."""

    def __init__(self, place: Callable[[], tuple[Bubblewrap, BwrapFolders]]) -> None:
        super().__init__()
        self._place = place
        self.leases = Leases(lambda: place()[1].leases)

    @property
    def place(self) -> str:
        """The folder with the environments of all interpreters."""
        return str(self._place()[1].base.parent)

    @property
    def interpreter(self) -> InterpreterTag:
        """The interpreter that sandboxes run."""
        return self._place()[0].interpreter.tag

    @property
    def python(self) -> str:  # type: ignore[override]
        """The path of that interpreter."""
        return self._place()[0].interpreter.path

    @property
    def staging(self) -> Path:
        """A folder on the disk of the store."""
        return self._place()[1].staging

    async def find_lock(self, key: str) -> tuple[str, ...] | None:
        """Return the lock of a published environment, or None when there is none."""
        try:
            return await asyncio.to_thread(_lock, self._place()[1].envs / key)
        except (OSError, ValueError, RecursionError) as error:
            raise SandboxError(f"the environment store cannot be read: {error}") from error

    async def publish(self, tree: Path, key: str, lock: Sequence[str]) -> None:
        """Byte-compile a tree in a sandbox that sees nothing else, and move it to its place."""
        bubblewrap, store = self._place()
        await asyncio.to_thread(_change_owner, tree, UNPRIVILEGED)
        act = f"finish(Path({_TREE!r}), json.loads(sys.argv[1]))\nprint(json.dumps(dict()))"
        code = f"{source('environment_store')}\n{act}"
        arguments = bubblewrap.build_arguments(
            [bubblewrap.interpreter.path, "-I", "-c", code, json.dumps(lock)],
            read_only={},
            tmpfs={"/tmp": _TEMPORARY},
            writable={tree: _TREE},
        )
        await _run(bubblewrap, arguments)
        try:
            await asyncio.to_thread(_publish, tree, store.envs / key)
        except OSError as error:
            raise SandboxError(f"the environment could not be stored: {error}") from error

    async def list_environments(self) -> list[StoredEnvironment]:
        """Return every published environment, those for other interpreters as well."""
        try:
            return await asyncio.to_thread(self._stored)
        except OSError as error:
            raise SandboxError(f"the environment store cannot be read: {error}") from error

    def _stored(self) -> list[StoredEnvironment]:
        return [
            StoredEnvironment(key, tuple(lock), size, self.leases.find_last_use(key) or published)
            for envs in self._place()[1].list_environment_folders()
            for key, (lock, size, published) in environment_store.list_environments(envs).items()
        ]

    async def remove(self, keys: Sequence[str]) -> None:
        """Remove environments that were claimed."""
        try:
            for envs in self._place()[1].list_environment_folders():
                await asyncio.to_thread(environment_store.remove, envs, list(keys))
        except OSError as error:
            raise SandboxError(f"the environment store cannot be written: {error}") from error


async def _run(bubblewrap: Bubblewrap, arguments: Sequence[str]) -> None:
    process = await complete_or_undo(BwrapProcess.spawn(bubblewrap, arguments), BwrapProcess.end)
    try:
        async with asyncio.timeout(DEADLINE):
            await read_result(process.reader)
    except TimeoutError:
        raise SandboxError(f"byte-compiling packages took longer than {DEADLINE:.0f} s") from None
    except ValueError as error:
        raise SandboxError(f"the builder ended without an answer: {error}; {await process.describe_end()}") from error
    finally:
        await asyncio.shield(process.end())


def _publish(tree: Path, place: Path) -> None:
    """Move an environment to its place; one that was published meanwhile is left as it is."""
    _change_owner(tree, 0)
    tree.chmod(0o755)
    try:
        tree.rename(place)
    except OSError:
        if not place.is_dir():
            raise


def _lock(environment: Path) -> tuple[str, ...] | None:
    try:
        return parse_strings(json.loads((environment / environment_store.LOCK).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def _change_owner(tree: Path, owner: int) -> None:
    """Give a tree to a user, where root runs this: sandboxes must be able to write it only while they compile it."""
    if os.geteuid() == 0:
        for path in (tree, *tree.rglob("*")):
            os.lchown(path, owner, owner)
