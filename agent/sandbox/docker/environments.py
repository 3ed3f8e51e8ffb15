"""Stores dependency environments in a named volume. Only short-lived builder containers can write to the volume."""

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
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TypeVar

from agent.errors import SandboxError
from agent.sandbox.base import SandboxLimits
from agent.sandbox.dependencies.store import DEADLINE, Leases, Store, StoredEnvironment, parse_strings, read_result
from agent.sandbox.docker.containers import (
    STORE,
    WORK,
    ContainerLauncher,
    ContainerSettings,
    diagnose_container,
    make_builder_config,
    make_sandbox_config,
)
from agent.sandbox.docker.engine import DockerEngine
from agent.sandbox.folders import get_shared_cache, get_user_cache
from agent.sandbox.inside import read_source
from agent.sandbox.interpreter import InterpreterTag

T = TypeVar("T")

_START_DEADLINE = 60.0
_BUILDER_MEMORY = 1 << 30

_PROBE = f"""
import platform
closed = [path for path in ({WORK!r}, "/tmp", "/dev/shm") if os.stat(path).st_mode & 0o7 != 0o7]
if closed:
    sys.exit("folders that are not world-writable: " + ", ".join(closed)
             + ". Remove them from the image, or set their mode to 1777.")
known = "CS_GNU_LIBC_VERSION" in os.confstr_names
libc, _, version = (os.confstr("CS_GNU_LIBC_VERSION") if known else "").partition(" ")
names = dict(cpython="cp", pypy="pp")
print(json.dumps(dict(
    full=platform.python_version(), version="%d.%d" % sys.version_info[:2], machine=os.uname().machine,
    implementation=names.get(sys.implementation.name, sys.implementation.name),
    libc=libc or "musl", libc_version=version or "1.1", store=read_locks(Path({STORE!r})),
)))
"""

_FINISH = f"""
tree = Path(sys.argv[1])
finish(tree, json.loads(sys.argv[3]))
publish(Path({STORE!r}), tree, sys.argv[2])
print(json.dumps(dict()))
"""
_LIST = f"print(json.dumps(list_environments(Path({STORE!r}))))"
_REMOVE = f"remove(Path({STORE!r}), sys.argv[1:])\nprint(dict())"


@dataclass(frozen=True)
class DockerResources:
    """The engine, the launcher and the container settings of a started backend."""

    engine: DockerEngine
    launcher: ContainerLauncher
    settings: ContainerSettings


class DockerEnvironmentStore(Store):
    """A `Store` in a volume that every sandbox mounts read-only.

    `resources` is called only after the backend has started. The keys of environments that existed at that time, or
    that this process published later, are cached in memory. Another process may have published any other key, so
    looking up an unknown key lists the volume again.

    Leases and last-use times are stored on the host, separately for each engine and volume. They cannot be stored in
    the volume, because sandboxes must not write to it, and starting a container for every use would be too slow. Other
    hosts and users of the same engine do not see the leases. If they remove an environment, this process builds the
    environment again.
    """

    def __init__(self, resources: Callable[[], DockerResources]) -> None:
        super().__init__()
        self._resources = resources
        self._known: dict[str, tuple[str, ...]] = {}
        self._interpreter: InterpreterTag | None = None
        self._leases_folder = Path()
        self.leases = Leases(lambda: self._leases_folder)

    @property
    def interpreter(self) -> InterpreterTag:
        """The interpreter in the image."""
        if self._interpreter is None:
            raise SandboxError("the Docker backend has not been started")
        return self._interpreter

    @property
    def location(self) -> str:
        """The name of the volume, as shown to users."""
        return f"volume {self._resources().settings.store}"

    @property
    def staging(self) -> Path:
        """The host folder for packages that are being installed."""
        return get_shared_cache() / "staging"

    async def probe(self) -> None:
        """Start a container to read the interpreter's version and the stored environments.

        This also tests whether hardened containers start on this engine.

        Raises:
            SandboxError: the container does not start, or the image has no Python.
        """
        resources = self._resources()
        command = ["python3", "-I", "-S", "-c", read_source("environment_store") + _PROBE]
        result = await _run_to_result(resources, make_sandbox_config(resources.settings, command), _START_DEADLINE)
        self._known, self._interpreter = _parse(_parse_probe, result)
        store_id = hashlib.sha256(f"{resources.engine.id}\0{resources.settings.store}".encode()).hexdigest()[:16]
        self._leases_folder = get_user_cache() / "docker" / store_id / "leases"

    async def find_lock(self, key: str) -> tuple[str, ...] | None:
        """Return the lock of a published environment, or None if the key is unknown."""
        if key not in self._known:
            await self.list_environments()
        return self._known.get(key)

    async def publish(self, tree: Path, key: str, lock: Sequence[str]) -> None:
        """Byte-compile and publish a tree in a short-lived container without network access, secrets or capabilities.

        Raises:
            SandboxError: the container did not start, failed or timed out.
        """
        resources = self._resources()
        path = f".staging/{key}-{secrets.token_hex(4)}/tree"
        script = f"{read_source('environment_store')}\n{_FINISH}"
        command = ["python3", "-I", "-c", script, f"{STORE}/{path}", key, json.dumps(lock)]

        def send(name: str) -> None:
            with tempfile.TemporaryFile() as archive:
                _pack(tree, path, archive)
                archive.seek(0)
                resources.engine.upload(name, STORE, archive)

        config = make_builder_config(_ensure_builder_memory(resources.settings), command)
        await _run_to_result(resources, config, DEADLINE, send)
        self._known[key] = tuple(lock)

    def forget(self, key: str) -> None:
        """Remove an environment from the in-memory cache, so that the next `find_lock` lists the volume again."""
        self._known.pop(key, None)

    async def list_environments(self) -> list[StoredEnvironment]:
        """Return every published environment in the volume."""
        resources = self._resources()
        command = ["python3", "-I", "-S", "-c", f"{read_source('environment_store')}\n{_LIST}"]
        result = await _run_to_result(resources, make_sandbox_config(resources.settings, command), _START_DEADLINE)
        environments = _parse(_parse_list, result)
        self._known = {environment.key: environment.installed for environment in environments}
        return [
            replace(environment, used_at=self.leases.find_last_use(environment.key) or environment.used_at)
            for environment in environments
        ]

    async def remove(self, keys: Sequence[str]) -> None:
        """Remove claimed environments, using a container without network access or capabilities."""
        resources = self._resources()
        command = ["python3", "-I", "-S", "-c", f"{read_source('environment_store')}\n{_REMOVE}", *keys]
        for key in keys:
            self.forget(key)
        await _run_to_result(resources, make_builder_config(resources.settings, command), DEADLINE)


def _parse_probe(result: Mapping[str, Any]) -> tuple[dict[str, tuple[str, ...]], InterpreterTag]:
    fields = {name: result[name] for name in ("full", "version", "machine", "implementation", "libc", "libc_version")}
    parse_strings(list(fields.values()))
    return {key: parse_strings(lock) for key, lock in result["store"].items()}, InterpreterTag(**fields)


def _parse_list(result: Mapping[str, Any]) -> list[StoredEnvironment]:
    return [
        StoredEnvironment(key, parse_strings(lock), int(size), float(published))
        for key, (lock, size, published) in result.items()
    ]


def _parse(read: Callable[[Mapping[str, Any]], T], result: Mapping[str, Any]) -> T:
    """Parse a container's result, which is untrusted."""
    try:
        return read(result)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise SandboxError(f"a container printed an invalid result: {error}") from error


def _ensure_builder_memory(settings: ContainerSettings) -> ContainerSettings:
    """Raise the memory limit to the minimum for byte-compilation. Sandboxes may have a lower limit."""
    limits = settings.limits
    builder_limits = SandboxLimits(memory=max(limits.memory, _BUILDER_MEMORY), cpus=limits.cpus, files=limits.files)
    return replace(settings, limits=builder_limits)


def _pack(tree: Path, path: str, stream: BinaryIO) -> None:
    """Write the files and folders of a tree as a tar archive in which root owns all entries."""

    def normalise(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if not (entry.isdir() or entry.isreg()):
            return None
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mode = 0o755 if entry.isdir() else 0o644
        return entry

    with tarfile.open(fileobj=stream, mode="w") as archive:
        for folder in (".staging", str(PurePosixPath(path).parent)):
            entry = tarfile.TarInfo(folder)
            # without a modification time the folder would look stale, and other builders remove stale folders
            entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, time.time()
            archive.addfile(entry)
        archive.add(tree, path, filter=normalise)


async def _run_to_result(
    resources: DockerResources, config: Mapping[str, Any], deadline: float, prepare: Callable[[str], None] | None = None
) -> dict[str, Any]:
    """Run a container until it exits. Return the JSON object in the last line of its output."""
    container = await resources.launcher.launch(config, prepare, deadline=deadline)
    try:
        async with asyncio.timeout(deadline):
            return await read_result(container.stream.reader)
    except TimeoutError:
        raise SandboxError(f"container {container.name} did not exit within {deadline:.0f} s") from None
    except (OSError, ValueError) as error:
        inspect = partial(resources.launcher.call, resources.engine.inspect_container, container.name)
        raise await diagnose_container(inspect, container.name, container.stream.stderr) from error
    finally:
        container.stream.close()
        resources.launcher.discard(container.name)
