"""The Docker backend: a fresh hardened container per pair, on any engine with a Docker-compatible API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from agent.config import find_data_folder
from agent.errors import EngineLost, InterpreterUnavailable, SandboxError, SandboxUnavailable
from agent.sandbox.base import (
    EnvironmentBuilder,
    Notify,
    SandboxBackend,
    SandboxLimits,
    Toolchain,
)
from agent.sandbox.channel import ChannelSandbox
from agent.sandbox.dependencies.environments import DependencyPolicy, WheelEnvironments
from agent.sandbox.docker.containers import (
    WORK,
    Container,
    ContainerLauncher,
    ContainerSettings,
    diagnose_container,
    make_sandbox_config,
)
from agent.sandbox.docker.engine import DockerEngine
from agent.sandbox.docker.environments import DockerEnvironmentStore, DockerResources
from agent.sandbox.docker.images import ImageSource, ensure_built, ensure_present, find_image
from agent.sandbox.inside import build_supervisor_argv
from agent.sandbox.interpreter import UNPRIVILEGED
from agent.sandbox.mounts import Mount
from agent.sandbox.owner import PREFIX, Owner
from agent.sandbox.pool import Pool
from agent.sandbox.seccomp import PROFILE, read_engine_profile
from agent.sandbox.toolchains import Toolchains

VOLUME = f"{PREFIX}-environments"
START_DEADLINE = 30.0
_REMOTE = (
    "sandbox.mount_ro needs a local Docker engine, but this engine is remote (not reached through a Unix socket). "
    "Add the files to an image (sandbox.image), or use a local engine."
)
_IMAGE_ID_LENGTH = 24


@dataclass(frozen=True)
class _Fallback:
    """Alternative container settings, used if the engine's error for a rejected container contains `keyword`.

    `loss` explains why `limit` is not enforced with these settings. It is empty if the limit is still enforced.
    """

    limit: str
    keyword: str
    loss: str
    apply: Callable[[ContainerSettings], ContainerSettings]


_FALLBACKS = (
    # Docker expects the profile inline, but Podman expects a path, which does not exist on a remote host.
    _Fallback(
        "seccomp",
        "seccomp",
        "",
        lambda settings: replace(settings, security=(f"seccomp={PROFILE}",)),
    ),
    _Fallback(
        "seccomp",
        "seccomp",
        "the engine uses its own seccomp profile because it rejected the bundled profile",
        lambda settings: replace(settings, security=()),
    ),
    # Podman 4.3 rejects nr_inodes
    _Fallback(
        "inodes",
        "nr_inodes",
        "the engine limits the size of temporary folders but not the number of files in them",
        lambda settings: replace(settings, limits=replace(settings.limits, inodes=0)),
    ),
)
"""Fallbacks in the order in which they are tried."""


class DockerBackend(SandboxBackend):
    """Starts one container per pair on the engine that Docker's own settings select.

    Args:
        limits: the resource limits for each sandbox.
        image: an image to use instead of the bundled one. The image must contain Python 3.8 or later.
        python: the Python version for the sandboxes, such as `3.9`. If `images` contains this version, its image is
            used. Otherwise, the bundled image is used if it has this version. If it does not, an official image that
            the engine already has is used.
        images: a mapping from Python versions to image names.
        dependency_policy: which dependencies may be installed, and how large their store may become.
        mounts: host files that every sandbox may read. Not available with a remote engine.
        volume: the persistent volume for the bundled image's dependency environments. Any other image has a separate
            volume, named after the image id, because its `python3` can write any data to the volume.
        pool: the number of containers to start in advance.
        starts: the maximum number of concurrent container starts. Each start needs about 0.1 s of CPU time.
        patience: the number of seconds to wait for an engine that does not respond, for example during a restart.
        connect: a function that connects to the engine. It may block.
    """

    name = "docker"
    limits: SandboxLimits

    def __init__(
        self,
        limits: SandboxLimits = SandboxLimits(),  # noqa: B008
        *,
        image: str | None = None,
        python: str | None = None,
        images: Mapping[str, str] = MappingProxyType({}),
        dependency_policy: DependencyPolicy = DependencyPolicy(),  # noqa: B008
        mounts: Sequence[Mount] = (),
        volume: str = VOLUME,
        pool: int = 4,
        starts: int = 2,
        patience: float = 60.0,
        connect: Callable[[], DockerEngine] = DockerEngine.connect,
    ) -> None:
        self.limits = limits
        self._image = image
        self._python = python
        self._images = images
        self._volume = volume
        self._mounts = tuple(mounts)
        self._connect = connect
        self._patience = patience
        self.store = DockerEnvironmentStore(self._require_started)
        self.environments: EnvironmentBuilder = WheelEnvironments(self.store, policy=dependency_policy)
        self._resources: DockerResources | None = None
        self._pool = Pool(self._start_sandbox, size=pool, starts=starts)
        self._toolchains = Toolchains(self._start_sandbox, self._pool.renew)
        self._progress: Notify = lambda _line: None
        self._description: Mapping[str, str] = {"backend": self.name}
        self._unenforced: Mapping[str, str] = {}
        self._alive: set[DockerSandbox] = set()
        self._last_argv: list[str] = []

    async def start(self, progress: Notify) -> None:
        """Connect to the engine, prepare the image, remove orphaned containers, and start a test container."""
        if self._resources is not None:
            return
        self._progress = self.store.on_wait = progress
        engine = await asyncio.to_thread(self._connect)
        launcher = ContainerLauncher(engine)
        try:
            if self._mounts and not engine.is_local:
                raise SandboxUnavailable(_REMOTE)
            image = await self._prepare_image(engine, launcher, progress)
            owner = Owner.current()
            limits = replace(self.limits, cpus=min(self.limits.cpus, engine.cpus))
            store = await launcher.call(self._choose_volume, engine, image)
            await launcher.call(engine.ensure_volume, store)
            await launcher.call(remove_orphans, engine, owner)
            security = (f"seccomp={read_engine_profile()}",)
            settings = ContainerSettings(image, limits, store, owner.as_labels(), security, self._mounts)
            self._resources = DockerResources(engine, launcher, settings)
            await self._probe(self._resources, progress)
            python = self.store.interpreter
            if self._python not in (None, python.version):
                raise InterpreterUnavailable(
                    f"the image {image} has Python {python.version}, but Python {self._python} was requested"
                )
            self._description = self._describe(engine, image, await launcher.call(engine.find_image_id, image))
        except BaseException as error:
            self._resources = None
            await launcher.close()
            engine.close()
            if isinstance(error, SandboxError):
                raise SandboxUnavailable(f"the Docker engine responds but cannot run sandboxes: {error}") from error
            raise
        self._pool.fill()

    def listen(self, on_wait: Notify) -> None:
        """Call `on_wait` with a line of text for each wait, for example while packages are being installed."""
        self.store.on_wait = on_wait

    def describe(self) -> Mapping[str, str]:
        """Return the engine, API version, image, image id, interpreter and platform that `start` determined."""
        return {**self._description, **self._toolchains.versions}

    def unenforced(self) -> Mapping[str, str]:
        """Return the limits that this engine cannot enforce, with the reason for each."""
        return self._unenforced

    async def require_toolchain(self, toolchain: Toolchain) -> str:
        """Return the version of a toolchain. See `SandboxBackend.require_toolchain`. A remote engine uses no wheels."""
        return await self._toolchains.require(toolchain, use_wheels=self._require_started().engine.is_local)

    async def acquire(self) -> DockerSandbox:
        """Return a fresh container whose supervisor responds. Cancelling this call leaves no container behind."""
        self._require_started()
        return await self._pool.take()

    async def close(self) -> None:
        """Release all sandboxes and wait until their containers are removed."""
        resources = self._resources
        if resources is None:
            return
        await self._pool.close()
        self._resources = None
        for sandbox in tuple(self._alive):
            await sandbox.release()
        self.store.leases.close()
        for name, error in (await resources.launcher.close()).items():
            self._progress(f"Container {name} could not be removed ({error}). The next run will remove it.")
        resources.engine.close()

    async def _probe(self, resources: DockerResources, progress: Notify) -> None:
        """Start a test container, using fallbacks for settings that the engine rejects. Report unenforced limits."""
        remaining = list(_FALLBACKS)
        losses: dict[str, str] = {}
        while True:
            try:
                await self.store.probe()
            except SandboxError as error:
                fallback = next((entry for entry in remaining if entry.keyword in str(error)), None)
                if fallback is None:
                    raise
                remaining.remove(fallback)
                resources = self._resources = replace(resources, settings=fallback.apply(resources.settings))
                if fallback.loss:
                    losses[fallback.limit] = fallback.loss
            else:
                self._unenforced = losses
                for limit, loss in losses.items():
                    progress(f"This engine does not enforce the {limit} limit: {loss}.")
                return

    async def _start_sandbox(self) -> DockerSandbox:
        """Start a container. If the engine does not respond, wait and retry."""
        resources = self._require_started()
        deadline = time.monotonic() + self._patience
        waiting = False
        while True:
            try:
                return await self._open(resources)
            except SandboxError as error:
                if time.monotonic() > deadline:
                    raise
                if not isinstance(error, EngineLost) and await resources.launcher.call(resources.engine.ping):
                    raise
            if not waiting:
                self._progress(f"The Docker engine does not respond. Waiting up to {self._patience:.0f} s.")
                waiting = True
            await asyncio.sleep(1)

    async def _open(self, resources: DockerResources) -> DockerSandbox:
        command = build_supervisor_argv("python3", user=(UNPRIVILEGED, UNPRIVILEGED), work=WORK)
        settings = replace(resources.settings, mounts=(*self._mounts, *self._toolchains.mounts))
        container = await resources.launcher.launch(make_sandbox_config(settings, command))
        sandbox = DockerSandbox(self._alive, resources, container, self._last_argv)
        try:
            await sandbox.open(START_DEADLINE)
            sandbox.prepare_runner()
        except BaseException:
            await sandbox.release()
            raise
        return sandbox

    def _require_started(self) -> DockerResources:
        if self._resources is None:
            raise SandboxError("the Docker backend has not been started or is already closed")
        return self._resources

    async def _prepare_image(self, engine: DockerEngine, launcher: ContainerLauncher, progress: Notify) -> str:
        if self._image is not None:
            await ensure_present(engine, self._image, progress, call=launcher.call)
            return self._image
        source = _get_bundled_image()
        if self._python is not None and (self._python in self._images or self._python != source.parse_base()[1]):
            return await launcher.call(find_image, engine, self._python, self._images)
        return await ensure_built(engine, source, progress, call=launcher.call)

    def _choose_volume(self, engine: DockerEngine, image: str) -> str:
        """Return the volume that builder containers of an image write to. Sandboxes of other images never mount it."""
        if self._image is None and image == _get_bundled_image().compute_tag():
            return self._volume
        image_id = (engine.find_image_id(image) or image).rpartition(":")[2]
        return f"{self._volume}-{image_id[:_IMAGE_ID_LENGTH]}"

    def _describe(self, engine: DockerEngine, image: str, image_id: str | None) -> Mapping[str, str]:
        return {
            "backend": self.name,
            "engine": engine.name,
            "api": engine.api_version,
            "platform": engine.platform,
            "image": image,
            "image_id": image_id or "",
            "python": self.store.interpreter.full,
        }


class DockerSandbox(ChannelSandbox):
    """A sandbox that runs in a Docker container. `name` is the container's name."""

    def __init__(
        self, alive: set[DockerSandbox], resources: DockerResources, container: Container, last_argv: list[str]
    ) -> None:
        stream, limits = container.stream, resources.settings.limits
        super().__init__(alive, stream.reader, stream.writer, limits, site=True, last_argv=last_argv)
        self.name = container.name
        self._resources = resources
        self._stream = stream

    @property
    def usable(self) -> bool:
        """Whether the container's output stream is still open."""
        return not self._stream.at_eof

    async def _destroy(self) -> None:
        """Close the connection and schedule removal of the container. `DockerBackend.close` waits for the removal."""
        self._stream.close()
        self._resources.launcher.discard(self.name)

    async def _explain(self, error: Exception) -> SandboxError:  # noqa: ARG002
        if self not in self._alive:
            return SandboxError("the sandbox has been released")
        inspect = partial(self._resources.launcher.call, self._resources.engine.inspect_container, self.name)
        return await diagnose_container(inspect, self.name, self._stream.stderr)


def _get_bundled_image() -> ImageSource:
    return ImageSource(find_data_folder("sandbox_images") / "python")


def remove_orphans(engine: DockerEngine, current: Owner) -> None:
    """Remove containers whose owner process on this host has exited. Blocks.

    Raises:
        SandboxError: the engine cannot list or remove containers.
    """
    for container, labels in engine.list_containers():
        owner = Owner.from_labels(labels)
        if owner is not None and owner.is_gone(current):
            engine.remove(container)
