"""An event loop with simulated time, which jumps to the next timer when nothing else is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Starts at 0 s. Coroutines may only wait for timers, not for files, threads or processes."""

    def __init__(self) -> None:
        super().__init__()
        self._simulated = 0.0

    def time(self) -> float:
        """Return the simulated time in seconds."""
        return self._simulated

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._simulated = max(self._simulated, self._scheduled[0]._when)  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def run_simulated(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in simulated time."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(coroutine)
