"""The Docker backend: a fresh hardened container per pair, on any engine that speaks Docker's API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from agent.errors import SandboxError, SandboxUnavailable
from agent.resources import data_folder
from agent.sandbox.attach import AttachedStream
from agent.sandbox.base import CommandResult, EnvironmentBuilder, Job, Limits, Progress, RunResult
from agent.sandbox.channel import Channel
from agent.sandbox.containers import WORK, ContainerCrew, Launched, sandbox_config
from agent.sandbox.docker_engine import DockerEngine
from agent.sandbox.docker_environments import DockerInstaller, Site, explain
from agent.sandbox.environments import WheelEnvironments
from agent.sandbox.images import ImageSource, ensure_built, ensure_present
from agent.sandbox.inside import supervisor_argv
from agent.sandbox.owner import PREFIX, Owner

VOLUME = f"{PREFIX}-environments"
UNPRIVILEGED = 65534
START_DEADLINE = 30.0


class DockerBackend:
    """Starts a container for each pair on the engine that Docker's own settings name.

    Args:
        limits: what one sandbox may use.
        image: an image to run in place of ours; it needs Python 3.8 or later, and pip for dependencies.
        network: whether missing dependencies are fetched from the package index.
        volume: the named volume that holds dependency environments, kept from run to run.
        connect: finds the engine; it may block.
    """

    name = "docker"

    def __init__(
        self,
        limits: Limits = Limits(),  # noqa: B008
        *,
        image: str | None = None,
        network: bool = True,
        volume: str = VOLUME,
        connect: Callable[[], DockerEngine] = DockerEngine.connect,
    ) -> None:
        self._limits = limits
        self._image = image
        self._volume = volume
        self._connect = connect
        self.installer = DockerInstaller(self._running)
        self.environments: EnvironmentBuilder = WheelEnvironments(self.installer, network=network)
        self._site: Site | None = None
        self._progress: Progress = _silent
        self._description: Mapping[str, str] = {"backend": self.name}
        self._alive: set[DockerSandbox] = set()

    async def start(self, progress: Progress) -> None:
        """Connect, build or find the image, remove what dead owners left, and start one container to see it works.

        Raises:
            SandboxUnavailable: no engine, no image, or no hardened container on it; the message says the remedy.
        """
        if self._site is not None:
            return
        self._progress = progress
        engine = await asyncio.to_thread(self._connect)
        crew = ContainerCrew(engine)
        try:
            image = await self._have_image(engine, crew, progress)
            owner = Owner.current()
            limits = replace(self._limits, cpus=min(self._limits.cpus, engine.cpus))
            self._site = Site(engine, crew, image, self._volume, limits, owner.labels())
            await crew.call(engine.ensure_volume, self._volume)
            await crew.call(sweep, engine, owner)
            await self.installer.probe()
            self._description = await self._describe(self._site)
        except BaseException as error:
            self._site = None
            await crew.close()
            engine.close()
            if isinstance(error, SandboxError):
                raise SandboxUnavailable(f"Docker answers, but sandboxes do not work on it: {error}") from error
            raise

    def describe(self) -> Mapping[str, str]:
        """Return engine, API version, image and its id, interpreter and platform, as of the start."""
        return self._description

    def unenforced(self) -> Mapping[str, str]:
        """Return what this machine cannot enforce, each with the reason."""
        return {}

    async def acquire(self) -> DockerSandbox:
        """Start a fresh container with a supervisor that answers; cancelling this leaves none.

        Raises:
            SandboxError: it could not be started.
        """
        site = self._running()
        command = supervisor_argv("python3", user=(UNPRIVILEGED, UNPRIVILEGED), work=WORK)
        config = sandbox_config(site.image, command, site.limits, site.store, site.labels)
        sandbox = DockerSandbox(site, await site.crew.launch(config), self._alive)
        try:
            await sandbox.open()
        except BaseException:
            await sandbox.release()
            raise
        return sandbox

    async def close(self) -> None:
        """Release every sandbox and wait until its container is gone."""
        site, self._site = self._site, None
        if site is None:
            return
        for sandbox in tuple(self._alive):
            await sandbox.release()
        for leftover in await site.crew.close():
            self._progress(f"A container is left; the next start removes it: {leftover}")
        site.engine.close()

    def _running(self) -> Site:
        if self._site is None:
            raise SandboxError("the Docker backend is not started, or closed")
        return self._site

    async def _have_image(self, engine: DockerEngine, crew: ContainerCrew, progress: Progress) -> str:
        if self._image is not None:
            await ensure_present(engine, self._image, progress, call=crew.call)
            return self._image
        source = ImageSource(data_folder("sandbox_images") / "python")
        return await ensure_built(engine, source, progress, call=crew.call)

    async def _describe(self, site: Site) -> Mapping[str, str]:
        return {
            "backend": self.name,
            "engine": site.engine.name,
            "api": site.engine.api_version,
            "platform": site.engine.platform,
            "image": site.image,
            "image_id": await site.crew.call(site.engine.image_id, site.image) or "",
            "python": self.installer.python,
        }


class DockerSandbox:
    """A container, `name`d to the engine, and the channel to the supervisor in it. `alive` holds the unreleased."""

    def __init__(self, site: Site, launched: Launched, alive: set[DockerSandbox]) -> None:
        self.name = launched.name
        self._site = site
        self._launched = launched
        self._alive = alive
        self._stream: AttachedStream | None = None
        self._channel: Channel | None = None
        self._unusable = ""
        alive.add(self)

    async def open(self) -> None:
        """Wait for the supervisor.

        Raises:
            SandboxError: it did not come up.
        """
        stream = self._stream = await AttachedStream.open(self._launched.connection)
        channel = Channel(stream.reader, stream.writer, self._site.limits, site=True, why=self._why)
        await channel.greet(START_DEADLINE)
        self._channel = channel

    async def run(self, job: Job) -> RunResult:
        """Run a program.

        Raises:
            SandboxError: supervisor, container or engine broke, now or before.
        """
        with self._asking() as channel:
            return await channel.run(job)

    async def command(self, argv: Sequence[str], timeout: float) -> CommandResult:
        """Run a command as the unprivileged user.

        Raises:
            SandboxError: as for `run`.
        """
        with self._asking() as channel:
            return await channel.command(argv, timeout)

    async def release(self) -> None:
        """Cut the connection and have the container removed; `DockerBackend.close` waits for that."""
        if self not in self._alive:
            return
        self._alive.remove(self)
        self._unusable = "it was released"
        if self._stream is None:
            self._launched.connection.close()
        else:
            self._stream.close()
        self._site.crew.discard(self.name)

    @contextmanager
    def _asking(self) -> Iterator[Channel]:
        """An unfinished answer would be taken for the next one's: after any failure nothing more is asked."""
        if self._channel is None or self._unusable:
            raise SandboxError(f"the sandbox cannot be used any more: {self._unusable or 'it was not opened'}")
        self._unusable = "it is running something, or was stopped while it did"
        yield self._channel
        self._unusable = ""

    async def _why(self) -> str:
        if self not in self._alive:
            return self._unusable
        return await explain(self._site, self.name, self._stream.stderr if self._stream else "")


def sweep(engine: DockerEngine, here: Owner) -> None:
    """Remove the containers whose owner, a process of this host, is dead. Blocks.

    Raises:
        SandboxError: the engine cannot list or remove containers.
    """
    for container, labels in engine.containers():
        owner = Owner.from_labels(labels)
        if owner is not None and owner.is_gone(here):
            engine.remove(container)


def _silent(line: str) -> None:
    """Tell nobody."""
