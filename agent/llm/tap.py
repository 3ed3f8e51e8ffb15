"""Listens in on an HTTP client: libraries above it hand out neither the status nor the body of an answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


@dataclass
class Heard:
    """The last HTTP response (`httpx.Response` or `httpx2.Response`) of the calls listened to."""

    response: Any = None

    @property
    def succeeded(self) -> bool:
        """Whether an answer with a status of success began to arrive."""
        return self.response is not None and bool(self.response.is_success)

    @property
    def body(self) -> bytes | None:
        """The body; None when it did not arrive completely."""
        try:
            return None if self.response is None else bytes(self.response.content)
        except RuntimeError:  # httpx.ResponseNotRead
            return None


_HEARD: ContextVar[Heard | None] = ContextVar("agent_llm_heard", default=None)


async def _hear(response: Any) -> None:
    heard = _HEARD.get()
    if heard is not None:
        heard.response = response


def tap(client: Any) -> None:
    """Let `listening` hear the answers of an `AsyncClient`; the client works as before."""
    hooks = client.event_hooks
    if _hear not in hooks["response"]:
        client.event_hooks = {**hooks, "response": [*hooks["response"], _hear]}


@contextmanager
def listening() -> Iterator[Heard]:
    """Keep what tapped clients receive in this task, and in tasks that it starts, within the block."""
    heard = Heard()
    token = _HEARD.set(heard)
    try:
        yield heard
    finally:
        _HEARD.reset(token)
