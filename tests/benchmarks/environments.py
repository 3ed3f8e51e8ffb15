"""What a dependency environment costs a run, once it is built."""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from agent.sandbox.base import SandboxBackend
from tests.benchmarks.lives import TRIVIAL
from tests.sandbox.stores import publish_wheel, store_of
from tests.sandbox.wheelhouse import make_wheel

KEY = "benchmark0"
ROUNDS = 30


async def environment_hit(backend: SandboxBackend) -> dict[str, float]:
    """Return what it takes to find a built environment, and what it adds to a run, in milliseconds (medians)."""
    store = store_of(backend)
    with tempfile.TemporaryDirectory() as folder:
        wheel = make_wheel(Path(folder), "bricks", files={"bricks.py": "COLOUR = 'red'\n"})
        await publish_wheel(backend, wheel, KEY)
    found: list[float] = []
    plain: list[float] = []
    within: list[float] = []
    for _ in range(ROUNDS):
        sandbox = await backend.acquire()
        begin = time.perf_counter()
        assert await store.find_lock(KEY) is not None
        found.append(time.perf_counter() - begin)
        for job, seconds in ((TRIVIAL, plain), (replace(TRIVIAL, environment=KEY), within)):
            begin = time.perf_counter()
            assert (await sandbox.run(job)).clean
            seconds.append(time.perf_counter() - begin)
        await sandbox.release()
    find, run, run_within = (statistics.median(each) * 1e3 for each in (found, plain, within))
    return {
        "find_ms": round(find, 3),
        "run_ms": round(run, 3),
        "run_within_ms": round(run_within, 3),
        "added_ms": round(find + max(0.0, run_within - run), 3),
    }
