"""The environment cache for bubblewrap sandboxes. It is a folder on the host. Sandboxes byte-compile the packages."""

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
from agent.sandbox.inside import environment_store, read_source
from agent.sandbox.interpreter import UNPRIVILEGED, InterpreterTag

_TEMPORARY = 64 << 20
_TREE = "/staging"


class BwrapEnvironmentStore(Store):
    """A `Store` in a folder on this host. `setup` returns the `Bubblewrap` and the folders of a started backend."""

    def __init__(self, setup: Callable[[], tuple[Bubblewrap, BwrapFolders]]) -> None:
        super().__init__()
        self._setup = setup
        self.leases = Leases(lambda: setup()[1].leases)

    @property
    def location(self) -> str:
        """The folder that contains the environments of all interpreters."""
        return str(self._setup()[1].base.parent)

    @property
    def interpreter(self) -> InterpreterTag:
        """The interpreter that runs in sandboxes."""
        return self._setup()[0].interpreter.tag

    @property
    def python(self) -> str:  # type: ignore[override]
        """The path of the interpreter."""
        return self._setup()[0].interpreter.path

    @property
    def staging(self) -> Path:
        """A temporary folder on the store's file system."""
        return self._setup()[1].staging

    async def find_lock(self, key: str) -> tuple[str, ...] | None:
        """Return the lock of a published environment, or None if the environment does not exist."""
        try:
            return await asyncio.to_thread(_read_lock, self._setup()[1].envs / key)
        except (OSError, ValueError, RecursionError) as error:
            raise SandboxError(f"cannot read the environment store: {error}") from error

    async def publish(self, tree: Path, key: str, lock: Sequence[str]) -> None:
        """Byte-compile a tree and move it into the store.

        The tree is compiled in a sandbox that has no access to other environments or to mounts.
        """
        bubblewrap, folders = self._setup()
        await asyncio.to_thread(_change_owner, tree, UNPRIVILEGED)
        call = f"finish(Path({_TREE!r}), json.loads(sys.argv[1]))\nprint(json.dumps(dict()))"
        code = f"{read_source('environment_store')}\n{call}"
        arguments = bubblewrap.build_arguments(
            [bubblewrap.interpreter.path, "-I", "-c", code, json.dumps(lock)],
            read_only={},
            tmpfs={"/tmp": _TEMPORARY},
            writable={tree: _TREE},
        )
        await _run_builder(bubblewrap, arguments)
        try:
            await asyncio.to_thread(_publish, tree, folders.envs / key)
        except OSError as error:
            raise SandboxError(f"cannot store the environment: {error}") from error

    async def list_environments(self) -> list[StoredEnvironment]:
        """Return all published environments, including environments for other interpreters."""
        try:
            return await asyncio.to_thread(self._list_stored)
        except OSError as error:
            raise SandboxError(f"cannot read the environment store: {error}") from error

    def _list_stored(self) -> list[StoredEnvironment]:
        return [
            StoredEnvironment(key, tuple(lock), size, self.leases.find_last_use(key) or published)
            for envs in self._setup()[1].list_environment_folders()
            for key, (lock, size, published) in environment_store.list_environments(envs).items()
        ]

    async def remove(self, keys: Sequence[str]) -> None:
        """Remove environments. The caller must have claimed them."""
        try:
            for envs in self._setup()[1].list_environment_folders():
                await asyncio.to_thread(environment_store.remove, envs, list(keys))
        except OSError as error:
            raise SandboxError(f"cannot write to the environment store: {error}") from error


async def _run_builder(bubblewrap: Bubblewrap, arguments: Sequence[str]) -> None:
    process = await complete_or_undo(BwrapProcess.spawn(bubblewrap, arguments), BwrapProcess.end)
    try:
        async with asyncio.timeout(DEADLINE):
            await read_result(process.reader)
    except TimeoutError:
        raise SandboxError(f"byte-compiling packages took longer than {DEADLINE:.0f} s") from None
    except ValueError as error:
        raise SandboxError(f"the builder ended without a result: {error}; {await process.describe_end()}") from error
    finally:
        await asyncio.shield(process.end())


def _publish(tree: Path, target: Path) -> None:
    """Move an environment to `target`, unless another process has already published it."""
    _change_owner(tree, 0)
    tree.chmod(0o755)
    try:
        tree.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def _read_lock(environment: Path) -> tuple[str, ...] | None:
    try:
        return parse_strings(json.loads((environment / environment_store.LOCK).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def _change_owner(tree: Path, owner: int) -> None:
    """As root, change the owner of a tree, so that sandboxes can write to it only while they compile it."""
    if os.geteuid() == 0:
        for path in (tree, *tree.rglob("*")):
            os.lchown(path, owner, owner)
