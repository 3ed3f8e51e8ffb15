"""The Python interface without an event loop: a thread of its own runs one."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from agent.annotator import Annotator
from agent.types import Annotation, Pair

_AHEAD = 64


def annotate(
    pairs: Iterable[Pair], *, ordered: bool = False, limit: int | None = None, **options: Any
) -> Iterator[Annotation]:
    """Yield an annotation for each pair, or the first `limit`; `options` are those of `Annotator`.

    Works inside a running event loop too (Jupyter, FastAPI): the work is done on another thread. At most 64 finished
    annotations wait to be fetched. Leaving the loop early ends the work in progress.

    Raises:
        AgentError: as `Annotator` and `Annotator.annotate` raise.
    """
    worker = _Worker(pairs, {"ordered": ordered, "limit": limit}, options)
    worker.start()
    try:
        while (item := worker.results.get()) is not _END:
            if isinstance(item, BaseException):
                raise item
            worker.fetched()
            yield item
    finally:
        worker.stop()


_END: Any = object()


class _Worker(threading.Thread):
    def __init__(self, pairs: Iterable[Pair], which: dict[str, Any], options: dict[str, Any]) -> None:
        super().__init__(name="agent.annotate", daemon=True)
        self.results: queue.Queue[Any] = queue.Queue()
        self._pairs = pairs
        self._which = which
        self._options = options
        self._ready = threading.Event()

    def run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._room = asyncio.Semaphore(_AHEAD)
        self._ready.set()
        try:
            async with Annotator(**self._options) as annotator:
                async for annotation in annotator.annotate(self._pairs, **self._which):
                    await self._room.acquire()
                    self.results.put(annotation)
        except asyncio.CancelledError:
            pass
        except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
            self.results.put(error)
        finally:
            self.results.put(_END)

    def fetched(self) -> None:
        self._call(self._room.release)

    def stop(self) -> None:
        self._ready.wait()
        if self._task is not None:
            self._call(self._task.cancel)
        self.join()

    def _call(self, function: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            # the loop is closed: the work has ended by itself
            return
