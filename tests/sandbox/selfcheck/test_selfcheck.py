"""On both backends, every check passes or needs a limit that is not enforced. Afterwards, nothing is left behind."""

from __future__ import annotations

import asyncio

import pytest

from agent.sandbox.selfcheck.check import CheckVerdict
from agent.sandbox.selfcheck.run import CHECKS, run_checks
from tests.sandbox import leftovers
from tests.sandbox.conftest import LIMITS, start


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param("bwrap", marks=pytest.mark.bwrap), pytest.param("docker", marks=pytest.mark.docker)]
)
async def test_every_check_passes_and_leaves_nothing_behind(name: str) -> None:
    await (await start(name)).close()  # creates the permanent store and image
    docker = name == "docker"
    containers_before = await asyncio.to_thread(leftovers.list_containers) if docker else set()
    volumes_before = await asyncio.to_thread(leftovers.list_volumes_and_networks) if docker else set()
    needs = {str(check): check.needs for check in CHECKS}
    with leftovers.adopt_orphans():
        before = leftovers.take_inventory()
        backend = await start(name)
        results = [result async for result in run_checks(backend, LIMITS)]
        unenforced = backend.unenforced()
        await backend.close()
        assert await leftovers.wait_for_inventory(before) == before
    assert [result for result in results if result.verdict is CheckVerdict.FAILED] == []
    assert len(results) == len(CHECKS)
    for result in results:
        if result.verdict is CheckVerdict.NOT_ENFORCED:
            assert result.detail == unenforced[needs[f"{result.group}: {result.check}"]]
    if docker:
        assert await asyncio.to_thread(leftovers.list_containers) <= containers_before
        assert await asyncio.to_thread(leftovers.list_volumes_and_networks) <= volumes_before


def test_checks_have_unique_names() -> None:
    assert len({str(check) for check in CHECKS}) == len(CHECKS) >= 216
    assert {check.needs for check in CHECKS} == {"", "memory", "cpu", "inodes", "seccomp"}
