"""One pair's container, and what may be asked of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from agent.errors import SandboxError
from agent.sandbox.base import CommandResult, Job, RunResult, Sandbox
from agent.sandbox.channel import Channel
from agent.sandbox.docker.attach import AttachedStream
from agent.sandbox.docker.containers import Launched
from agent.sandbox.docker.environments import Site
from agent.sandbox.docker.postmortem import postmortem
from agent.sandbox.inside import source

START_DEADLINE = 30.0


class DockerSandbox(Sandbox):
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
        channel = Channel(stream.reader, stream.writer, self._site.setting.limits, site=True, why=self._why)
        await channel.greet(START_DEADLINE)
        await channel.prepare(source("python_harness"))
        self._channel = channel

    @property
    def usable(self) -> bool:
        """Whether nothing speaks against asking it something: it was opened, and its stream has not ended."""
        return not self._unusable and self._stream is not None and not self._stream.ended

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

    async def _why(self) -> SandboxError:
        if self not in self._alive:
            return SandboxError(f"the sandbox cannot be used any more: {self._unusable}")
        site = self._site
        return await postmortem(
            lambda: site.crew.call(site.engine.state, self.name), self.name, self._stream.stderr if self._stream else ""
        )
