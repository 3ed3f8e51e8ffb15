"""The synchronous Python interface, which runs an event loop in its own thread."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Unpack

from agent.annotator import Annotator
from agent.datasets.fields import Pairs
from agent.runs.notebook import Annotations
from agent.runs.spec import AnnotatorOptions
from agent.types import Annotation

_MAX_BUFFERED = 64
_END: Any = object()


def annotate(
    pairs: Pairs,
    *,
    mapping: Mapping[str, str] | str | None = None,
    ordered: bool = True,
    limit: int | None = None,
    **options: Unpack[AnnotatorOptions],
) -> Annotations:
    """Annotate all pairs, or the first `limit` pairs, and return the annotations as a list.

    `Annotator.annotate` describes `pairs` and `mapping`; `Annotator` describes `options`. This function also works
    inside a running event loop (Jupyter, FastAPI). If a call without `run_dir` is interrupted, its annotations are
    lost; `stream` yields each annotation as it completes.

    Raises:
        AgentError: see `Annotator` and `Annotator.annotate`.
    """
    return Annotations(stream(pairs, mapping=mapping, ordered=ordered, limit=limit, **options))


def stream(
    pairs: Pairs,
    *,
    mapping: Mapping[str, str] | str | None = None,
    ordered: bool = False,
    limit: int | None = None,
    **options: Unpack[AnnotatorOptions],
) -> Generator[Annotation, None, None]:
    """Annotate all pairs, or the first `limit` pairs, and iterate over the annotations as they complete.

    `options` are the arguments of `Annotator`. The work runs in another thread, so this also works inside a running
    event loop. At most 64 finished annotations are buffered. Leaving the loop early cancels the work in progress.

    Raises:
        AgentError: see `Annotator` and `Annotator.annotate`.
    """
    results: queue.SimpleQueue[Any] = queue.SimpleQueue()
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any], asyncio.Semaphore]] = Future()

    async def work() -> None:
        task, room = asyncio.current_task(), asyncio.Semaphore(_MAX_BUFFERED)
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
    """Call a function in another thread's event loop unless the loop is closed."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function)
