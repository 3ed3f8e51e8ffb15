"""Measures what an environment with packages costs a run, once it is built."""

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
    """Return the median milliseconds to find a built environment, and those that it adds to a run."""
    store = get_store(backend)
    with tempfile.TemporaryDirectory() as folder:
        wheel = make_wheel(Path(folder), "bricks", files={"bricks.py": "COLOUR = 'red'\n"})
        await publish_wheel(backend, wheel, KEY)
    find: list[float] = []
    plain: list[float] = []
    within: list[float] = []
    for _ in range(ROUNDS):
        sandbox = await backend.acquire()
        start = time.perf_counter()
        assert await store.find_lock(KEY) is not None
        find.append(time.perf_counter() - start)
        for job, seconds in ((TRIVIAL, plain), (replace(TRIVIAL, environment=KEY), within)):
            start = time.perf_counter()
            assert (await sandbox.run(job)).clean
            seconds.append(time.perf_counter() - start)
        await sandbox.release()
    find_ms, run_ms, within_ms = (statistics.median(seconds) * 1e3 for seconds in (find, plain, within))
    return {
        "find_ms": round(find_ms, 3),
        "run_ms": round(run_ms, 3),
        "run_within_ms": round(within_ms, 3),
        "added_ms": round(find_ms + max(0.0, within_ms - run_ms), 3),
    }
