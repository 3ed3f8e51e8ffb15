"""Does asynchronous work over an iterator, so much at once and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
_DONE: Any = object()


async def completed(
    items: Iterable[Item] | AsyncIterable[Item],
    work: Callable[[Item], Awaitable[Result]],
    *,
    concurrency: int,
    ordered: bool = False,
) -> AsyncGenerator[Result, None]:
    """Yield `work(item)` for each item, in completion order or (`ordered`) in input order.

    At most `concurrency` items are in progress, and as many again wait for their turn to be yielded in order. The first
    exception of `work` ends it, after the results that were there already; leaving early cancels what is in progress.
    """
    source = _aiter(items)
    pull: asyncio.Task[Any] | None = asyncio.ensure_future(anext(source, _DONE))
    running: dict[asyncio.Task[Result], int] = {}
    waiting: dict[int, Result] = {}
    taken = given = 0
    try:
        while pull is not None or running:
            room = len(running) < concurrency and len(running) + len(waiting) < 2 * concurrency
            watched: set[asyncio.Task[Any]] = {*running, pull} if pull is not None and room else {*running}
            done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            if pull in done:
                item = pull.result()
                pull = None
                if item is not _DONE:
                    running[asyncio.ensure_future(work(item))] = taken
                    taken += 1
                    pull = asyncio.ensure_future(anext(source, _DONE))
            failed: BaseException | None = None
            for task in sorted((t for t in done if t in running), key=running.__getitem__):
                index = running.pop(task)
                if task.exception() is not None:
                    failed = failed or task.exception()
                else:
                    waiting[index] = task.result()
            while waiting and (not ordered or given in waiting):
                yield waiting.pop(given if ordered else next(iter(waiting)))
                given += 1
            if failed is not None:
                raise failed
    finally:
        await _cancel([*running, *([] if pull is None else [pull])])
        await source.aclose()


async def _cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _aiter(items: Iterable[Item] | AsyncIterable[Item]) -> AsyncGenerator[Item, None]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
