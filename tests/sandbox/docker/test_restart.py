"""A Docker daemon that is restarted in the middle of a run costs time, and no program its result.

It is the daemon of this machine, so this runs alone, and only with AGENT_TEST_RESTART_DOCKER=1; then never skipped.
"""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from tests.conftest import lacking
from tests.sandbox.crowd import HONEST, RUNS, Crowd
from tests.sandbox.daemon import restart
from tests.sandbox.faults import disturbed, started, whole

pytestmark = pytest.mark.skipif(
    os.environ.get("AGENT_TEST_RESTART_DOCKER") != "1",
    reason="restarts the Docker daemon of this machine only with AGENT_TEST_RESTART_DOCKER=1",
)


async def test_a_daemon_that_restarts_costs_no_program_its_result() -> None:
    assert lacking("docker") is None
    crowd, left = Crowd(HONEST), list[int]()

    async def restart_once() -> None:
        await crowd.go_on(by=RUNS // 4)
        await asyncio.to_thread(restart)
        left.append(RUNS - crowd.ended)

    async with started() as backend:
        begun = time.monotonic()
        await disturbed(crowd, backend, restart_once())
        print(f"{RUNS} programs took {time.monotonic() - begun:.0f} s, {left} were left when the daemon was back")
        whole(crowd)
    assert len(left) == 1
    assert left[0] > 0
