"""The Python interface without an event loop: a thread of its own runs one."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from agent.annotator import Annotator
from agent.datasets import Pairs
from agent.notebook import Annotations
from agent.types import Annotation

_AHEAD = 64
_END: Any = object()


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
    results: queue.SimpleQueue[Any] = queue.SimpleQueue()
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any], asyncio.Semaphore]] = Future()

    async def work() -> None:
        task, room = asyncio.current_task(), asyncio.Semaphore(_AHEAD)
        assert task is not None
        started.set_result((asyncio.get_running_loop(), task, room))
        try:
            async with Annotator(**options) as annotator:
                annotations = annotator.annotate(pairs, mapping=mapping, ordered=ordered, limit=limit)
                async for annotation in annotations:
                    await room.acquire()
                    results.put(annotation)
        except asyncio.CancelledError:
            pass
        except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
            results.put(error)
        finally:
            results.put(_END)

    worker = threading.Thread(target=lambda: asyncio.run(work()), name="agent.annotate", daemon=True)
    worker.start()
    loop, task, room = started.result()
    try:
        while (item := results.get()) is not _END:
            if isinstance(item, BaseException):
                raise item
            _call_soon(loop, room.release)
            yield item
    finally:
        _call_soon(loop, task.cancel)
        worker.join()


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    """Call a function in a loop on another thread, unless the loop is closed: then its work has ended."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function)
