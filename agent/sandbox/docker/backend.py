"""The Docker backend: a fresh hardened container per pair, on any engine that speaks Docker's API."""

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
    Progress,
    SandboxBackend,
    SandboxLimits,
)
from agent.sandbox.channel import ChannelSandbox
from agent.sandbox.dependencies.environments import Supply, WheelEnvironments
from agent.sandbox.docker.containers import (
    WORK,
    Container,
    ContainerLauncher,
    ContainerSetting,
    diagnose_container,
    make_sandbox_config,
)
from agent.sandbox.docker.engine import DockerEngine
from agent.sandbox.docker.environments import DockerEnvironmentStore, DockerResources
from agent.sandbox.docker.images import ImageSource, ensure_built, ensure_present, find_image
from agent.sandbox.inside import supervisor_argv
from agent.sandbox.interpreter import UNPRIVILEGED
from agent.sandbox.mounts import Mount
from agent.sandbox.owner import PREFIX, Owner
from agent.sandbox.pool import Pool
from agent.sandbox.seccomp import PROFILE, engine_profile

VOLUME = f"{PREFIX}-environments"
START_DEADLINE = 30.0
_REMOTE = (
    "--mount-ro shows files of this machine, and the Docker engine is on another (it is not reached by a Unix socket): "
    "put the files into an image (--image), or use an engine of this machine"
)
_ID = 24


@dataclass(frozen=True)
class _Fallback:
    """What is asked in another way, or given up, where an engine refuses a container with `word` in its message.

    `loss` says what is not enforced then; nothing, if it is empty.
    """

    what: str
    word: str
    loss: str
    made: Callable[[ContainerSetting], ContainerSetting]


_FALLBACKS = (
    # Podman reads the name of a file where Docker reads the profile itself; a remote one has no such file
    _Fallback(
        "seccomp",
        "seccomp",
        "",
        lambda setting: replace(setting, security=(f"seccomp={PROFILE}",)),
    ),
    _Fallback(
        "seccomp",
        "seccomp",
        "the engine keeps its own profile, for it does not take ours",
        lambda setting: replace(setting, security=()),
    ),
    # Podman, as of version 4.3
    _Fallback(
        "inodes",
        "nr_inodes",
        "the engine limits the size of temporary folders and not the number of files",
        lambda setting: replace(setting, limits=replace(setting.limits, inodes=0)),
    ),
)
"""In the order in which they are tried."""


class DockerBackend(SandboxBackend):
    """Starts a container for each pair on the engine that Docker's own settings name.

    Args:
        limits: what one sandbox may use.
        image: an image to run in place of ours; it needs Python 3.8 or later.
        python: the minor version that sandboxes run, as `3.9`: by an image of `images`, which maps such versions to
            names, or an official one that the engine has.
        supply: which dependencies may be had, and how many are kept.
        mounts: what of the host every sandbox may read; not with a remote engine.
        volume: the named volume that holds dependency environments, kept from run to run; an image that is not ours
            has one of its own, by its id, since what it calls `python3` may write there what it likes.
        pool: how many containers wait, started, for the next pairs.
        starts: how many containers are starting at once; each takes about one core for a tenth of a second.
        patience: seconds for which a start waits for an engine that has gone, as one that is being restarted.
        connect: finds the engine; it may block.
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
        supply: Supply = Supply(),  # noqa: B008
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
        self.environments: EnvironmentBuilder = WheelEnvironments(self.store, supply=supply)
        self._resources: DockerResources | None = None
        self._pool = Pool(self._start_sandbox, size=pool, starts=starts)
        self._progress: Progress = lambda _line: None
        self._description: Mapping[str, str] = {"backend": self.name}
        self._unenforced: Mapping[str, str] = {}
        self._alive: set[DockerSandbox] = set()

    async def start(self, progress: Progress) -> None:
        """Connect, build or find the image, remove what dead owners left, and start one container to see it works."""
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
            security = (f"seccomp={engine_profile()}",)
            setting = ContainerSetting(image, limits, store, owner.as_labels(), security, self._mounts)
            self._resources = DockerResources(engine, launcher, setting)
            await self._probe(self._resources, progress)
            python = self.store.interpreter
            if self._python not in (None, python.version):
                raise InterpreterUnavailable(
                    f"the image {image} has Python {python.version}, and not {self._python}, as asked for"
                )
            self._description = self._describe(engine, image, await launcher.call(engine.find_image_id, image))
        except BaseException as error:
            self._resources = None
            await launcher.close()
            engine.close()
            if isinstance(error, SandboxError):
                raise SandboxUnavailable(f"Docker answers, but sandboxes do not work on it: {error}") from error
            raise
        self._pool.fill()

    def listen(self, waits: Progress) -> None:
        """Have `waits` given the packages that are being installed."""
        self.store.on_wait = waits

    def describe(self) -> Mapping[str, str]:
        """Return engine, API version, image and its id, interpreter and platform, as of the start."""
        return self._description

    def unenforced(self) -> Mapping[str, str]:
        """Return what this machine cannot enforce, each with the reason."""
        return self._unenforced

    async def acquire(self) -> DockerSandbox:
        """Return a container that nobody had before, with a supervisor that answers; cancelling this leaves none."""
        self._require_started()
        return await self._pool.take()

    async def close(self) -> None:
        """Release every sandbox and wait until its container is gone."""
        resources = self._resources
        if resources is None:
            return
        await self._pool.close()
        self._resources = None
        for sandbox in tuple(self._alive):
            await sandbox.release()
        self.store.leases.close()
        for name, error in (await resources.launcher.close()).items():
            self._progress(f"Container {name} is left; the next start removes it: {error}")
        resources.engine.close()

    async def _probe(self, resources: DockerResources, progress: Progress) -> None:
        """Start a container; what the engine refuses is asked in another way or given up, and reported."""
        remaining = list(_FALLBACKS)
        losses: dict[str, str] = {}
        while True:
            try:
                await self.store.probe()
            except SandboxError as error:
                fallback = next((one for one in remaining if one.word in str(error)), None)
                if fallback is None:
                    raise
                remaining.remove(fallback)
                resources = self._resources = replace(resources, setting=fallback.made(resources.setting))
                if fallback.loss:
                    losses[fallback.what] = fallback.loss
            else:
                self._unenforced = losses
                for what, loss in losses.items():
                    progress(f"This engine cannot enforce all that others do ({what}): {loss}")
                return

    async def _start_sandbox(self) -> DockerSandbox:
        """Start a container; as long as the engine does not answer, wait for it."""
        resources = self._require_started()
        deadline = time.monotonic() + self._patience
        waiting = False
        while True:
            try:
                return await self._open(resources)
            except SandboxError as error:
                lost = isinstance(error, EngineLost)
                if time.monotonic() > deadline or (not lost and await resources.launcher.call(resources.engine.ping)):
                    raise
            if not waiting:
                self._progress(f"The Docker engine does not answer; waiting up to {self._patience:.0f} s for it")
                waiting = True
            await asyncio.sleep(1)

    async def _open(self, resources: DockerResources) -> DockerSandbox:
        command = supervisor_argv("python3", user=(UNPRIVILEGED, UNPRIVILEGED), work=WORK)
        sandbox = DockerSandbox(
            self._alive, resources, await resources.launcher.launch(make_sandbox_config(resources.setting, command))
        )
        try:
            await sandbox.open(START_DEADLINE)
        except BaseException:
            await sandbox.release()
            raise
        return sandbox

    def _require_started(self) -> DockerResources:
        if self._resources is None:
            raise SandboxError("the Docker backend is not started, or closed")
        return self._resources

    async def _prepare_image(self, engine: DockerEngine, launcher: ContainerLauncher, progress: Progress) -> str:
        if self._image is not None:
            await ensure_present(engine, self._image, progress, call=launcher.call)
            return self._image
        source = _get_bundled_image()
        if self._python is not None and (self._python in self._images or self._python != source.parse_base()[1]):
            return await launcher.call(find_image, engine, self._python, self._images)
        return await ensure_built(engine, source, progress, call=launcher.call)

    def _choose_volume(self, engine: DockerEngine, image: str) -> str:
        """Return the volume that an image's builders write to: no other image's sandboxes have it mounted."""
        if self._image is None and image == _get_bundled_image().compute_tag():
            return self._volume
        image_id = (engine.find_image_id(image) or image).rpartition(":")[2]
        return f"{self._volume}-{image_id[:_ID]}"

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
    """A container, `name`d to the engine."""

    def __init__(self, alive: set[DockerSandbox], resources: DockerResources, container: Container) -> None:
        stream = container.stream
        super().__init__(alive, stream.reader, stream.writer, resources.setting.limits, site=True)
        self.name = container.name
        self._resources = resources
        self._stream = stream

    @property
    def usable(self) -> bool:
        """Whether its stream has not ended."""
        return not self._stream.at_eof

    async def _destroy(self) -> None:
        """Cut the connection and have the container removed; `DockerBackend.close` waits for that."""
        self._stream.close()
        self._resources.launcher.discard(self.name)

    async def _explain(self, error: Exception) -> SandboxError:  # noqa: ARG002
        if self not in self._alive:
            return SandboxError("the sandbox cannot be used any more: it was released")
        inspect = partial(self._resources.launcher.call, self._resources.engine.inspect_container, self.name)
        return await diagnose_container(inspect, self.name, self._stream.stderr)


def _get_bundled_image() -> ImageSource:
    return ImageSource(find_data_folder("sandbox_images") / "python")


def remove_orphans(engine: DockerEngine, here: Owner) -> None:
    """Remove the containers whose owner, a process of this host, is dead. Blocks.

    Raises:
        SandboxError: the engine cannot list or remove containers.
    """
    for container, labels in engine.list_containers():
        owner = Owner.from_labels(labels)
        if owner is not None and owner.is_gone(here):
            engine.remove(container)
