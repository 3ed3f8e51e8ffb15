"""Restarting the Docker daemon during a run delays programs but does not change their results.

The test restarts this machine's daemon, so it runs only if AGENT_TEST_RESTART_DOCKER=1 is set, and never with others.
"""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from tests.conftest import explain_missing
from tests.sandbox.crowd import HONEST, RUNS, Crowd
from tests.sandbox.daemon import restart
from tests.sandbox.faults import assert_complete, disturb, run_backend

pytestmark = pytest.mark.skipif(
    os.environ.get("AGENT_TEST_RESTART_DOCKER") != "1",
    reason="restarts this machine's Docker daemon, and therefore needs AGENT_TEST_RESTART_DOCKER=1",
)


async def test_a_daemon_restart_changes_no_result() -> None:
    assert explain_missing("docker") is None
    crowd, remaining = Crowd(HONEST), list[int]()

    async def restart_once() -> None:
        await crowd.wait_for_progress(by=RUNS // 4)
        await asyncio.to_thread(restart)
        remaining.append(RUNS - crowd.ended_count)

    async with run_backend() as backend:
        start_time = time.monotonic()
        await disturb(crowd, backend, restart_once())
        print(f"{RUNS} programs took {time.monotonic() - start_time:.0f} s, {remaining} remained after the restart")
        assert_complete(crowd)
    assert len(remaining) == 1
    assert remaining[0] > 0
