"""Measures how much time a cached environment adds to a run."""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from agent.sandbox.base import SandboxBackend
from tests.benchmarks.cycles import TRIVIAL
from tests.sandbox.stores import get_store, publish_wheel
from tests.sandbox.wheelhouse import make_wheel

KEY = "benchmark0"
ROUNDS = 30


async def measure_environment(backend: SandboxBackend) -> dict[str, float]:
    """Return the median time to find a cached environment and the time that it adds to a run, in milliseconds."""
    store = get_store(backend)
    with tempfile.TemporaryDirectory() as folder:
        wheel = make_wheel(Path(folder), "bricks", files={"bricks.py": "COLOUR = 'red'\n"})
        await publish_wheel(backend, wheel, KEY)
    find_seconds: list[float] = []
    plain_seconds: list[float] = []
    cached_seconds: list[float] = []
    for _ in range(ROUNDS):
        sandbox = await backend.acquire()
        start = time.perf_counter()
        assert await store.find_lock(KEY) is not None
        find_seconds.append(time.perf_counter() - start)
        for job, seconds in ((TRIVIAL, plain_seconds), (replace(TRIVIAL, environment=KEY), cached_seconds)):
            start = time.perf_counter()
            assert (await sandbox.run(job)).clean
            seconds.append(time.perf_counter() - start)
        await sandbox.release()
    medians = map(statistics.median, (find_seconds, plain_seconds, cached_seconds))
    find_ms, plain_ms, cached_ms = (seconds * 1e3 for seconds in medians)
    return {
        "find_ms": round(find_ms, 3),
        "run_ms": round(plain_ms, 3),
        "run_cached_ms": round(cached_ms, 3),
        "added_ms": round(find_ms + max(0.0, cached_ms - plain_ms), 3),
    }
