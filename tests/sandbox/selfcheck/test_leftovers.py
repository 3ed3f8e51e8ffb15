"""The self-check tries its worst, and when its backend is closed nothing of it is left."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from agent.sandbox.base import SandboxBackend
from agent.sandbox.selfcheck import CHECKS, Check, Verdict, inspect
from tests.sandbox.conftest import BACKENDS, LIMITS, start
from tests.sandbox.leftovers import comes_to, containers, held, orphans_kept, volumes_and_networks

OF_A_GROUP = 4


def handful() -> list[Check]:
    """Return the same number of checks from each group, spread over it."""
    sizes, seen = Counter(check.group for check in CHECKS), Counter[str]()
    chosen = []
    for check in CHECKS:
        if seen[check.group] % -(-sizes[check.group] // OF_A_GROUP) == 0:
            chosen.append(check)
        seen[check.group] += 1
    return chosen


async def examined(backend: SandboxBackend) -> Counter[Verdict]:
    """Run the handful and count the verdicts."""
    return Counter([finding.verdict async for finding in inspect(backend, LIMITS, checks=handful())])


@pytest.mark.parametrize("name", BACKENDS)
async def test_nothing_is_left_after_the_self_check_and_close(name: str) -> None:
    await (await start(name)).close()  # what is made once and kept, as the store and the image, is there
    docker = name == "docker"
    ours = await asyncio.to_thread(containers) if docker else set()
    made = await asyncio.to_thread(volumes_and_networks) if docker else set()
    with orphans_kept():
        before = held()
        backend = await start(name)
        found = await examined(backend)
        await backend.close()
        assert await comes_to(before) == before
    assert not found[Verdict.BROKEN]
    assert found[Verdict.HELD] > len(handful()) // 2
    if docker:
        assert await asyncio.to_thread(containers) <= ours
        assert await asyncio.to_thread(volumes_and_networks) <= made
