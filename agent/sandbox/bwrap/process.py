"""One running bubblewrap: started, spoken to, and ended so that nothing in its namespaces is left."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, SubprocessStreamProtocol
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from agent.errors import SandboxError
from agent.sandbox.bwrap.command import Bubblewrap
from agent.sandbox.interpreter import as_unprivileged

T = TypeVar("T")

_END_SECONDS = 5.0
_BUFFER = 1 << 18
_LAST_WORDS = 2000


class BwrapProcess:
    """A process of bubblewrap, which waits for the first one in its namespaces. Owned by one event loop."""

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: SubprocessStreamProtocol) -> None:
        assert protocol.stdin is not None
        assert protocol.stdout is not None
        assert protocol.stderr is not None
        self.writer = protocol.stdin
        self.reader = protocol.stdout
        self.stderr = protocol.stderr
        self._transport = transport
        self._process = asyncio.subprocess.Process(transport, protocol, asyncio.get_running_loop())

    @classmethod
    async def spawn(cls, bubblewrap: Bubblewrap, arguments: Sequence[str]) -> BwrapProcess:
        """Start bubblewrap with `Bubblewrap.arguments`, with pipes for its streams. Not to be cancelled.

        Raises:
            SandboxError: it could not be started.
        """
        loop = asyncio.get_running_loop()
        try:
            with _opened(bubblewrap.filter) as descriptors:
                confined = [word for descriptor in descriptors for word in ("--seccomp", str(descriptor))]
                transport, protocol = await loop.subprocess_exec(
                    lambda: SubprocessStreamProtocol(_BUFFER, loop), bubblewrap.executable, *confined, *arguments,
                    stdin=PIPE, stdout=PIPE, stderr=PIPE, pass_fds=descriptors,
                    start_new_session=True, cwd="/", env={}, **as_unprivileged(),
                )  # fmt: skip
        except OSError as error:
            raise SandboxError(f"bubblewrap could not be started: {error}") from error
        return cls(transport, protocol)

    @property
    def first(self) -> int | None:
        """The pid, to the host, of the first process inside; None where the kernel does not say."""
        return next(iter(_children(self._process.pid)), None)

    def kill(self) -> None:
        """Kill the first process inside, with which the kernel ends all others; bubblewrap ends when they have.

        Where bubblewrap itself is killed while it starts, the process it has just made waits for it forever.
        """
        if self._process.returncode is None:
            for pid in _children(self._process.pid) or [self._process.pid]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    async def end(self) -> None:
        """Kill all of it, wait until it is gone, and close its streams."""
        self.kill()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._transport.kill()
            await self._process.wait()
        finally:
            self._transport.close()
            # what it had not read any more is nobody's loss; asyncio before 3.11.4 complains of it unless it is asked
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    await self.writer.wait_closed()

    async def last_words(self) -> str:
        """Return what it said on stderr when it ended, else how it ended."""
        said = b""
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                said = await self.stderr.read(_LAST_WORDS)
                await self._process.wait()
        ended = "" if self._process.returncode is None else f"it ended with exit code {self._process.returncode}"
        return said.decode("utf-8", "replace").strip() or ended


@contextmanager
def _opened(file: Path | None) -> Iterator[tuple[int, ...]]:
    """Open a file anew: bubblewrap reads it to its end, so that no two may share a descriptor."""
    if file is None:
        yield ()
        return
    descriptor = os.open(file, os.O_RDONLY)
    try:
        yield (descriptor,)
    finally:
        os.close(descriptor)


async def finished(work: Awaitable[T], undo: Callable[[T], Awaitable[None]]) -> T:
    """Return what `work` gives, and let it finish even when this is cancelled: then its result is undone at once."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.cancelled():
            await asyncio.shield(_undone(task, undo))
        raise


async def _undone(task: asyncio.Future[T], undo: Callable[[T], Awaitable[None]]) -> None:
    with suppress(SandboxError):  # nobody is left to be told
        await undo(await task)


def _children(pid: int) -> list[int]:
    """Return a process's children; none where the kernel does not say."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    except OSError:
        return []
