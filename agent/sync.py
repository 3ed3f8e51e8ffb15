"""The Python interface without an event loop: a thread of its own runs one."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Generator, Mapping
from typing import Any

from agent.annotator import Annotator
from agent.datasets import Pairs
from agent.notebook import Annotations
from agent.types import Annotation

_AHEAD = 64


def annotate(
    pairs: Pairs,
    *,
    mapping: Mapping[str, str] | str | None = None,
    ordered: bool = True,
    limit: int | None = None,
    **options: Any,
) -> Annotations:
    """Return the annotations of all pairs, or of the first `limit`, as a list; `options` are those of `Annotator`.

    Takes what `Annotator.annotate` takes for `pairs` and `mapping`, and works inside a running event loop too (Jupyter,
    FastAPI). What is finished when it is interrupted is lost, unless `run_dir` keeps it; `stream` gives the annotations
    one by one.

    Raises:
        AgentError: as `Annotator` and `Annotator.annotate` raise.
    """
    return Annotations(stream(pairs, mapping=mapping, ordered=ordered, limit=limit, **options))


def stream(
    pairs: Pairs,
    *,
    mapping: Mapping[str, str] | str | None = None,
    ordered: bool = False,
    limit: int | None = None,
    **options: Any,
) -> Generator[Annotation, None, None]:
    """Yield an annotation for each pair, or the first `limit`, when it is ready; `options` are those of `Annotator`.

    Works inside a running event loop too: the work is done on another thread. At most 64 finished annotations wait to
    be fetched. Leaving the loop early ends the work in progress.

    Raises:
        AgentError: as `Annotator` and `Annotator.annotate` raise.
    """
    worker = _Worker(pairs, {"mapping": mapping, "ordered": ordered, "limit": limit}, options)
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
    def __init__(self, pairs: Pairs, which: dict[str, Any], options: dict[str, Any]) -> None:
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
